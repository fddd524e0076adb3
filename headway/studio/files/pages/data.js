import { empty } from "../dom.js";

export const title = "data";

export function show(host) {
  host.append(empty("Not built yet."));
}
