import { empty } from "../dom.js";

export const title = "run";

export function show(host) {
  host.append(empty("Not built yet."));
}
