// Search without a server: browsers refuse to start a Worker for a page that was opened from a folder (file://), so there
// the search's script runs in a hidden frame instead, which answers to the same two names: postMessage and onmessage.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow; // about:blank: of our own origin
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => Promise.all(urls.map((each) => load(frame, each)));
      this.frame = frame;
      this.ready = load(frame, url);
    }

    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}

function load(frame, url) {
  return new Promise((done, failed) => {
    const script = frame.contentDocument.createElement("script");
    Object.assign(script, { src: url, onload: done, onerror: failed });
    frame.contentDocument.body.append(script);
  });
}
