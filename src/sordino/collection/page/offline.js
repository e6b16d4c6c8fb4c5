/** Keep the page on this device. It works without; only a reload then needs a connection. */
export function keepPage() {
  if (!navigator.serviceWorker) return;
  const only = (path) => {
    if (path !== "worker.js") throw new TypeError("No other script.");
    return path;
  };
  const policy = globalThis.trustedTypes?.createPolicy("worker", { createScriptURL: only });
  const path = policy ? policy.createScriptURL("worker.js") : "worker.js";
  navigator.serviceWorker.register(path, { scope: "./", updateViaCache: "none" }).catch(() => {});
}
