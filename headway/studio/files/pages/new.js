import { empty } from "../dom.js";

export const title = "new";

export function show(host) {
  host.append(empty("Not built yet."));
}
