/**
 * `<sordino-feedback>`: a few buttons beside an answer of a chat, for any page.
 *
 * They lie in a frame of the service's own origin: no script of the page around can see which one was
 * pressed. The page tells the frame the texts; the frame tells that it is ready, how high it is, and
 * that somebody answered, never what.
 *
 *     <script type="module" src="https://study.example.org/widget.js"></script>
 *     <sordino-feedback invitation="TOKEN" ask="thumb">
 *       <p slot="prompt">What was asked</p>
 *       <p slot="answer">What was answered</p>
 *     </sordino-feedback>
 *
 * Attributes: `src` (address of the service; by default where this file came from), `invitation` (the
 * open token), `ask` ("thumb", or "pair" with two answers), `label` (name of the frame for screen
 * readers). Properties: `prompt` and `answers`, in place of the slots; each text is a string or a list
 * of messages with `role` and `content`. Event: `answered`.
 */

const HIGHEST = 1000; // pixels of a frame

class SordinoFeedback extends HTMLElement {
  static observedAttributes = ["src", "invitation", "ask"];

  #frame = null;
  #service = null;
  #ready = false;
  #telling = false;
  #prompt = null;
  #answers = null;
  #hear = (event) => this.#heard(event);

  get prompt() {
    return this.#prompt ?? this.querySelector('[slot="prompt"]')?.textContent.trim() ?? "";
  }

  set prompt(text) {
    this.#prompt = text;
    this.#tell();
  }

  get answers() {
    return this.#answers ?? Array.from(this.querySelectorAll('[slot="answer"]'), (node) => node.textContent.trim());
  }

  set answers(texts) {
    this.#answers = texts;
    this.#tell();
  }

  connectedCallback() {
    addEventListener("message", this.#hear);
    this.#mount();
  }

  disconnectedCallback() {
    removeEventListener("message", this.#hear);
    this.#frame?.remove();
    this.#frame = null;
  }

  attributeChangedCallback(name) {
    if (this.#frame === null) return;
    if (name === "ask") this.#tell();
    else this.#mount();
  }

  /** Put a fresh frame in place; its address tells it whom to talk to. */
  #mount() {
    const given = this.getAttribute("src");
    this.#service = new URL(given === null ? "." : `${given.replace(/\/*$/, "")}/`, given === null ? import.meta.url : document.baseURI);
    this.#ready = false;
    const frame = document.createElement("iframe");
    const about = { origin: location.origin, invitation: this.getAttribute("invitation") ?? "" };
    frame.src = `${new URL("feedback", this.#service)}#${new URLSearchParams(about)}`;
    frame.title = this.getAttribute("label") ?? "Feedback";
    frame.loading = "lazy"; // a long chat has many
    frame.referrerPolicy = "no-referrer";
    frame.setAttribute("sandbox", "allow-scripts allow-same-origin");
    frame.style.cssText = "display: block; inline-size: 100%; block-size: 7rem; border: 0; border-radius: 0.6rem;";
    const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
    root.replaceChildren(frame);
    this.style.display ||= "block";
    this.#frame = frame;
  }

  /** Send the texts, to the service's own origin and to nobody else; what changes together goes once. */
  #tell() {
    if (!this.#ready || this.#telling) return;
    this.#telling = true;
    queueMicrotask(() => {
      this.#telling = false;
      const [prompt, answers] = [this.prompt, this.answers];
      const lang = this.closest("[lang]")?.lang ?? "";
      const asked = { sordino: "ask", ask: this.getAttribute("ask") ?? "thumb", prompt, answers, lang };
      this.#frame?.contentWindow.postMessage(asked, this.#service.origin);
    });
  }

  #heard({ source, origin, data }) {
    if (this.#frame === null || source !== this.#frame.contentWindow || origin !== this.#service.origin) return;
    if (data?.sordino === "ready") {
      this.#ready = true;
      this.#tell();
    } else if (data?.sordino === "height" && data.pixels > 0) {
      this.#frame.style.blockSize = `${Math.min(data.pixels, HIGHEST)}px`;
    } else if (data?.sordino === "answered") {
      this.dispatchEvent(new CustomEvent("answered", { bubbles: true, composed: true }));
    }
  }
}

customElements.define("sordino-feedback", SordinoFeedback);
