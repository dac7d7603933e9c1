// Durable Objects that keep the rows of plain jobs as Stepwell does, written by hand, with no engine: what the platform
// itself takes. A job is one row, a claim is one row for all jobs that it takes, and the counts are one row that is written
// with each request that changes them. There are no priorities, groups, delays, retries, dead letters or pushes, and no
// lease ever ends.

import { DurableObject } from "cloudflare:workers";

export class Jobs extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.sql = ctx.storage.sql;
    this.sql.exec(`CREATE TABLE IF NOT EXISTS jobs(number INTEGER PRIMARY KEY, sent_at INTEGER NOT NULL,
      mark TEXT NOT NULL, first INTEGER NOT NULL, body TEXT NOT NULL)`);
    this.sql.exec("CREATE TABLE IF NOT EXISTS leases(nonce TEXT PRIMARY KEY, holds TEXT NOT NULL) WITHOUT ROWID");
    this.sql.exec("CREATE TABLE IF NOT EXISTS head(id INTEGER PRIMARY KEY, state TEXT NOT NULL)");
    this.last = this.sql.exec("SELECT coalesce(max(number), 0) AS last FROM jobs").one().last;
    this.cursor = 0;
    this.alive = 0;
    this.held = new Map();
  }

  head() {
    const state = JSON.stringify({ last: this.last, alive: this.alive, dead: 0 });
    this.sql.exec("INSERT OR REPLACE INTO head VALUES(1, ?)", state);
  }

  send(body) {
    const number = ++this.last;
    this.alive += 1;
    this.sql.exec("INSERT INTO jobs VALUES(?, ?, ?, ?, ?)", number, Date.now(), crypto.randomUUID(), number, body);
    this.head();
    return JSON.stringify({ status: "accepted", id: String(number) });
  }

  claim(limit) {
    const rows = this.sql.exec("SELECT number, sent_at, body FROM jobs WHERE number > ? ORDER BY number LIMIT ?",
      this.cursor, limit).toArray();
    if (rows.length === 0) return JSON.stringify({ jobs: [] });
    const nonce = crypto.randomUUID();
    this.cursor = rows[rows.length - 1].number;
    const holds = rows.map((row) => row.number);
    this.held.set(nonce, holds);
    this.sql.exec("INSERT INTO leases VALUES(?, ?)", nonce, JSON.stringify(holds));
    return JSON.stringify({ jobs: rows.map((row) => ({ lease: `${row.number}.${nonce}`, body: row.body })) });
  }

  ack(leases) {
    for (const lease of leases) {
      const [number, nonce] = lease.split(".");
      this.sql.exec("DELETE FROM jobs WHERE number = ?", Number(number));
      this.sql.exec("DELETE FROM leases WHERE nonce = ?", nonce);
      this.alive -= 1;
    }
    this.head();
    return JSON.stringify({ results: leases.map((lease) => ({ id: lease, status: "done" })) });
  }
}

let next = 0;

export default {
  async fetch(request, env) {
    const objects = Number(env.OBJECTS);
    const path = new URL(request.url).pathname;
    const body = await request.json();
    // Leases name their object.
    const index = path === "/ack" ? Number(body.leases[0].split(":")[0]) : next++ % objects;
    const object = env.JOBS.get(env.JOBS.idFromName(`object-${index}`));
    if (path === "/send") return new Response(await object.send(JSON.stringify(body.body)), { status: 201 });
    if (path === "/ack") return new Response(await object.ack(body.leases.map((lease) => lease.split(":")[1])));
    for (let tried = 0; tried < objects; tried++) {
      const which = (index + tried) % objects;
      const answer = JSON.parse(await env.JOBS.get(env.JOBS.idFromName(`object-${which}`)).claim(body.limit));
      if (answer.jobs.length > 0) {
        const jobs = answer.jobs.map((job) => ({ ...job, body: JSON.parse(job.body), lease: `${which}:${job.lease}` }));
        return Response.json({ jobs });
      }
    }
    return Response.json({ jobs: [] });
  },
};
