// A pass of a model: it stays on the server, and every map or vector is asked for once, when it is drawn.

import { post } from "../api.js";

/** Run an input. `ask(path, body)` then asks about the pass; a pass that the server has forgotten is run again. */
export async function runPass(model, given, signal) {
  const start = () => post("/api/xray/pass", { model, ...given }, signal);
  const found = await start(), asked = new Map();
  let key = found.key;
  async function fresh(path, body) {
    try {
      return await post("/api/xray/" + path, { key, ...body }, signal);
    } catch (error) {
      if (error.status !== 404) throw error;
      key = (await start()).key;
      return post("/api/xray/" + path, { key, ...body }, signal);
    }
  }
  return { ...found, model, given, fresh,
    ask(path, body = {}) {
      const name = path + JSON.stringify(body);
      if (!asked.has(name)) asked.set(name, fresh(path, body).catch(error => { asked.delete(name); throw error; }));
      return asked.get(name);
    } };
}

/** Where an answer is read: the last position, or the only one of a model with one answer. */
export const lastPlace = pass => Math.max(0, (pass.predictions || [[]]).length - 1);
