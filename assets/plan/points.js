/* global FOLDER */
// In a plan's saved picture, a click on a point opens the page of that point's run, from FOLDER.
document
  .querySelector(".plotly-graph-div")
  .on("plotly_click", ({ points: [{ customdata: n }] }) => {
    if (Number.isInteger(n)) window.open(`${FOLDER}/${n}.html`);
  });
