/**
 * Keeps the page on the device, so that it opens without a connection. It keeps files of the page
 * only; questions, answers and everything under /api go past it.
 */

const HOME = new URL("./", self.location);
const OURS = `sordino-page ${HOME.pathname} `; // other pages of this host keep theirs
const CACHE = `${OURS}__PAGE__`;
const FILES = [
  "./",
  "page/style.css",
  "page/icon.svg",
  "page/answered.js",
  "page/canonical.js",
  "page/demonstration.js",
  "page/elements.js",
  "page/explanation.js",
  "page/identifiers.js",
  "page/kinds.js",
  "page/markdown.js",
  "page/memory.js",
  "page/offline.js",
  "page/moving.js",
  "page/passage.js",
  "page/preview.js",
  "page/question.js",
  "page/randomize.js",
  "page/sending.js",
  "page/service.js",
  "page/status.js",
  "page/study.js",
  "page/terms.js",
  "page/texts.js",
  "page/vendor/markdown-it.esm.min.mjs",
  "page/vendor/purify.es.mjs",
  "page/wallet.js",
];

self.addEventListener("install", (event) => {
  self.skipWaiting();
  const requests = FILES.map((file) => new Request(file, { cache: "reload", credentials: "omit" }));
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(requests)));
});

// Files of two versions must never mix: older caches go, and a page runs from one of them whole.
self.addEventListener("activate", (event) => {
  event.waitUntil(removeOlder().then(() => self.clients.claim()));
});

async function removeOlder() {
  const names = await caches.keys();
  await Promise.all(names.filter((name) => name.startsWith(OURS) && name !== CACHE).map((name) => caches.delete(name)));
}

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  const file = FILES.find((name) => new URL(name, HOME).pathname === url.pathname);
  const ours = url.origin === HOME.origin && file !== undefined;
  if (event.request.method === "GET" && ours) event.respondWith(kept(event, file));
});

async function kept({ request, clientId }, file) {
  // The widget is not kept, so nothing that it loads may be of an older version.
  if ((await self.clients.get(clientId))?.frameType === "nested") return fetch(request);
  const cache = await caches.open(CACHE);
  return (await cache.match(file)) ?? fetch(request);
}
