// Before anything is shown: links of earlier pages go on to the player, and a reader who has chosen
// another language gets it.
(() => {
  const { hash, search } = location;
  const { player, here, others } = window.inflightEnter;
  let language = new URLSearchParams(search).get("lang");
  try {
    if (language) localStorage.setItem("inflight-language", language);
    else language = localStorage.getItem("inflight-language");
  } catch {
    // without storage nothing is chosen
  }
  if (hash.includes("=")) return location.replace(player + hash);
  if (language && language !== here && others[language]) location.replace(others[language] + hash);
})();
