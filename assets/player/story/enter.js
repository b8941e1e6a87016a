// Runs before anything is shown: links to earlier pages go on to the player, and a reader who has
// chosen another language gets the page in it.
(() => {
  const { hash, search } = location;
  const { player, here, others } = window.inflightEnter;
  const places = new Map([[here, ""], ...Object.entries(others)]);
  const asked = new URLSearchParams(hash.slice(1));
  let language = new URLSearchParams(search).get("lang") ?? asked.get("lang") ?? "";
  try {
    if (places.has(language)) localStorage.setItem("inflight-language", language);
    else language = localStorage.getItem("inflight-language") ?? "";
  } catch {
    // without storage the choice is not kept
  }
  if ([...asked].some(([name, value]) => value && name !== "lang"))
    return location.replace(player + hash);
  const place = places.get(language);
  if (place) location.replace(place + hash);
})();
