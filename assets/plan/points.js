/* global FOLDER */
// In a plan's saved picture: a click on a point opens the page of its run, which lies in that folder.
document
  .querySelector(".plotly-graph-div")
  .on("plotly_click", ({ points: [{ customdata: n }] }) => {
    if (Number.isInteger(n)) window.open(`${FOLDER}/${n}.html`);
  });
