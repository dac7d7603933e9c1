// The program of `bare-split`: the same loop as in the object, but each commit is a call on the session.

import { WorkerEntrypoint } from "cloudflare:workers";

export default class extends WorkerEntrypoint {
  async activate(steps, session) {
    let sum = 0;
    for (let number = 0; number < steps; number++) {
      await session.commit(JSON.stringify({ step_finished: { op: `step:${number}:add`, attempt: 1, outcome: { ok: number } } }));
      sum += number;
    }
    await session.finish(sum);
  }

  fetch() {
    return new Response("This Worker is called by its objects only.", { status: 404 });
  }
}
