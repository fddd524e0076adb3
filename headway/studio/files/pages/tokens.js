import { empty } from "../dom.js";

export const title = "tokens";

export function show(host) {
  host.append(empty("Not built yet."));
}
