import { empty } from "../dom.js";

export const title = "learn";

export function show(host) {
  host.append(empty("Not built yet."));
}
