// Makes the search work in pages that were opened from a file, where browsers start no workers:
// the worker's script runs in a hidden frame. The offline plugin would load such a script from the web.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc =
        `<script>postMessage = data => parent.postMessage(data, "*")</script><script src="${url}"></script>`
      this.loaded = new Promise(resolve => (frame.onload = () => resolve(frame.contentWindow)))
      addEventListener("message", event => {
        if (event.source === frame.contentWindow)
          this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      })
      document.body.append(frame)
    }
    postMessage(data) {
      this.loaded.then(frame => frame.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {}
  }
}
