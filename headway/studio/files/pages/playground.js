import { empty } from "../dom.js";

export const title = "playground";

export function show(host) {
  host.append(empty("Not built yet."));
}
