/* global FOLDER */
// In the saved picture of a plan, a click on a point opens the page of that point's run, a file in
// FOLDER.
document
  .querySelector(".plotly-graph-div")
  .on("plotly_click", ({ points: [{ customdata: n }] }) => {
    if (Number.isInteger(n)) window.open(`${FOLDER}/${n}.html`);
  });
