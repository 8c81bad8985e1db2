// The state that a page shares with its kernel, as anywidget gives it to what a page shows.

/** Does something at each of these events, several separated by spaces; returns what ends that.
 * @type {(model: import("./types").Model, acts: Record<string, (message: any) => void>) => () => void} */
export function listening(model, acts) {
  const pairs = Object.entries(acts).flatMap(([events, act]) => events.split(" ").map((event) => ({ event, act })));
  for (const { event, act } of pairs) model.on(event, act);
  return () => {
    for (const { event, act } of pairs) model.off(event, act);
  };
}
