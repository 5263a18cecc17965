/* A page that is served while its run goes on: asks for news, and loads itself again when there are. */

const ASK_MS = 3000;
const TOP_PX = 700;

function note(text, action) {
  const banner = document.getElementById("banner");
  banner.hidden = false;
  banner.replaceChildren();
  addText(banner, text);
  if (action) {
    const button = make("button", { type: "button", text: action });
    button.addEventListener("click", () => location.reload());
    banner.append(" ", button);
  }
}

/** The step, the time that is left, when the run last wrote something, and why it has failed. */
function showStatus(text) {
  let line = document.getElementById("live");
  if (!line) {
    line = make("p", { id: "live", role: "status" });
    document.getElementById("banner").before(line);
  }
  line.replaceChildren("Live: ");
  addText(line, text);
}

/** Whoever reads further down is asked first; the place in the page is the browser's to keep. */
async function follow(version) {
  let news;
  try {
    news = await (await fetch("version", { cache: "no-store" })).json();
  } catch {
    note("The run has ended, or `rejuice view --live` was stopped.");
    return;
  }
  showStatus(news.status);
  if (news.version !== version) {
    if (scrollY < TOP_PX && document.visibilityState === "visible") location.reload();
    else note("There are new figures.", "Load them");
  } else if (!news.running) {
    note("The run has ended: these are its last figures.");
    return;
  }
  setTimeout(follow, ASK_MS, version);
}

if (HEAD.live) follow(HEAD.live);
