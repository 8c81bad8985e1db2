// Shows the page of a server (`ptynb dashboard`), whose messages come through a WebSocket.

import { withBuffers } from "./elements.js";
import { show } from "./show.jsx";

const AGAIN_MS = 500;

/** Shows the page in a node; `lost` is shown while there is no connection. */
export function connect(el, lost) {
  const listeners = [];
  let socket = null;
  let session = null;
  let tree = null;

  const channel = {
    get: () => tree,
    on: (_event, act) => listeners.push(act),
    send(message, _callbacks, buffers = []) {
      if (socket.readyState !== WebSocket.OPEN) return;
      socket.send(JSON.stringify({ message, buffers: buffers.length }));
      buffers.forEach((buffer) => socket.send(buffer));
    },
  };

  const receive = (message, buffers) => {
    if (session === null) {
      session = message.session;
      tree = withBuffers(message.tree, buffers);
      show({ channel, model: { widget_manager: null }, el });
    } else if (message.session && message.session !== session) {
      location.reload(); // of another server
    } else {
      for (const act of listeners) act(message, buffers);
    }
  };

  const open = () => {
    socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/messages`);
    socket.binaryType = "arraybuffer";
    let header = null;
    let buffers = [];
    socket.addEventListener("open", () => (lost.hidden = true));
    socket.addEventListener("message", ({ data }) => {
      if (typeof data === "string") [header, buffers] = [JSON.parse(data), []];
      else buffers.push(new DataView(data));
      if (buffers.length === header.buffers) receive(header.message, buffers);
    });
    socket.addEventListener("close", () => {
      lost.hidden = false;
      setTimeout(open, AGAIN_MS);
    });
  };
  open();
}
