import { empty } from "../dom.js";

export const title = "xray";

export function show(host) {
  host.append(empty("Not built yet."));
}
