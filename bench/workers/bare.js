// Durable Objects that keep the same rows as Stepwell does, written by hand, with no engine: what the platform
// itself takes. A run is one row, each step is one row of a journal and one durable commit, the end is an
// update. The rows have about as many bytes as Stepwell's. There are no retries, timers, signals, idempotency
// keys or recovery; whoever wants those has to write them.

import { DurableObject, RpcTarget } from "cloudflare:workers";

const OBJECTS = 16;

class Runs extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.sql = ctx.storage.sql;
    // Counting is for a pass that is not timed.
    this.counts = env.COUNT === "1";
    this.rowsWritten = 0;
    this.requests = 0;
    this.write(`CREATE TABLE IF NOT EXISTS runs(number INTEGER PRIMARY KEY, suffix TEXT NOT NULL,
      workflow TEXT NOT NULL, status TEXT NOT NULL, created_at INTEGER NOT NULL, ended_at INTEGER,
      state TEXT NOT NULL, input TEXT NOT NULL, result TEXT)`);
    this.write(`CREATE TABLE IF NOT EXISTS journal(run INTEGER NOT NULL, seq INTEGER NOT NULL,
      at INTEGER NOT NULL, event TEXT NOT NULL, mark TEXT, PRIMARY KEY(run, seq)) WITHOUT ROWID`);
    this.lastNumber = this.sql.exec("SELECT coalesce(max(number), 0) AS last FROM runs").one().last;
  }

  // The only method that is called from outside of the object.
  async start(steps) {
    this.requests += 1;
    const now = Date.now();
    const run = { number: ++this.lastNumber, seed: randomHex(), seq: 0 };
    const state = JSON.stringify({
      seed: run.seed, epoch: 1, spent: { rows: 2, requests: 1, at: 0 },
      phase: { running: { since: now, session: "open", alone: false } },
    });
    this.write("INSERT INTO runs(number, suffix, workflow, status, created_at, state, input) VALUES(?, ?, ?, ?, ?, ?, ?)",
      run.number, run.seed.slice(0, 12), "steps", "running", now, state, String(steps));
    await this.work(run, steps);
    const answer = { id: `${run.number}-${run.seed}`, workflow: "steps", status: "completed", created_at: now, output: run.output };
    if (this.counts) {
      answer.totals = { object: this.ctx.id.toString(), rows_written: this.rowsWritten, requests: this.requests };
    }
    return JSON.stringify(answer);
  }

  record(run, event) {
    const seq = ++run.seq;
    const mark = JSON.stringify({ epoch: 1, base: seq - 1, hash: run.seed, through: seq });
    this.write("INSERT INTO journal VALUES(?, ?, ?, ?, ?)", run.number, seq, Date.now(), event, mark);
  }

  finish(run, output) {
    const now = Date.now();
    const state = JSON.stringify({
      seed: run.seed, epoch: 1, spent: { rows: run.seq + 3, requests: 1, at: run.seq },
      phase: { ended: { how: "completed", at: now } },
    });
    this.write("UPDATE runs SET status = ?, ended_at = ?, state = ?, result = ? WHERE number = ?",
      "completed", now, state, JSON.stringify(output), run.number);
    run.output = output;
  }

  write(query, ...bindings) {
    const cursor = this.sql.exec(query, ...bindings);
    if (this.counts) this.rowsWritten += cursor.rowsWritten;
  }
}

// The program inside the object: it waits for each commit itself.
export class Inline extends Runs {
  async work(run, steps) {
    await this.ctx.storage.sync();
    let sum = 0;
    for (let number = 0; number < steps; number++) {
      this.record(run, stepFinished(number, number));
      await this.ctx.storage.sync();
      sum += number;
    }
    this.finish(run, sum);
    // The answer leaves the object only when this is durable too: the platform holds it back.
  }
}

// The program in another Worker, which commits on a session. The platform holds back the call, and each answer
// of the session, until what was written before is durable.
export class Split extends Runs {
  async work(run, steps) {
    await this.env.PROGRAM.activate(steps, new Session(this, run));
  }
}

class Session extends RpcTarget {
  #runs;
  #run;
  constructor(runs, run) {
    super();
    this.#runs = runs;
    this.#run = run;
  }
  commit(event) { this.#runs.record(this.#run, event); }
  finish(output) { this.#runs.finish(this.#run, output); }
}

function stepFinished(number, value) {
  return JSON.stringify({ step_finished: { op: `step:${number}:add`, attempt: 1, outcome: { ok: value } } });
}

function randomHex() {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2));
  return high.toString(16).padStart(8, "0") + low.toString(16).padStart(8, "0");
}

let next = 0;

export default {
  async fetch(request, env) {
    const steps = await request.json();
    const id = env.FRESH === "1" ? env.RUNS.newUniqueId() : env.RUNS.idFromName(`object-${next++ % OBJECTS}`);
    const answer = await env.RUNS.get(id).start(steps);
    return new Response(answer, { status: 201, headers: { "content-type": "application/json" } });
  },
};
