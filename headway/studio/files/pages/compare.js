import { empty } from "../dom.js";

export const title = "compare";

export function show(host) {
  host.append(empty("Not built yet."));
}
