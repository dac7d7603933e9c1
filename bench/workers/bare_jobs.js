// Durable Objects that keep the rows of plain jobs as Stepwell does, written by hand, with no engine: what the platform
// itself takes. A job is one row, a claim is one row for all jobs that it takes, which is there for another claim when they
// are done, and the counts are written with these rows. There are no priorities, groups, delays, retries, dead letters or
// pushes, and no lease ever ends.

import { DurableObject } from "cloudflare:workers";

export class Jobs extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.sql = ctx.storage.sql;
    this.sql.exec(`CREATE TABLE IF NOT EXISTS jobs(number INTEGER PRIMARY KEY, sent_at INTEGER NOT NULL,
      mark TEXT NOT NULL, first INTEGER NOT NULL, counts TEXT NOT NULL, body TEXT NOT NULL)`);
    this.sql.exec(`CREATE TABLE IF NOT EXISTS leases(id INTEGER PRIMARY KEY, nonce TEXT NOT NULL, holds TEXT NOT NULL,
      counts TEXT NOT NULL)`);
    this.last = this.sql.exec("SELECT coalesce(max(number), 0) AS last FROM jobs").one().last;
    this.cursor = 0;
    this.alive = 0;
    this.stored = 0;
    this.rows = 0;
    this.free = [];
    this.held = new Map();
  }

  counts() {
    return JSON.stringify({ stored: ++this.stored, last: this.last, alive: this.alive, dead: 0 });
  }

  lease(nonce, claim) {
    const { id, holds } = claim;
    this.sql.exec("INSERT OR REPLACE INTO leases VALUES(?, ?, ?, ?)", id, nonce, JSON.stringify([...holds]), this.counts());
  }

  send(body) {
    const number = ++this.last;
    this.alive += 1;
    const mark = crypto.randomUUID();
    this.sql.exec("INSERT INTO jobs VALUES(?, ?, ?, ?, ?, ?)", number, Date.now(), mark, number, this.counts(), body);
    return JSON.stringify({ status: "accepted", id: String(number) });
  }

  claim(limit) {
    const rows = this.sql.exec("SELECT number, sent_at, body FROM jobs WHERE number > ? ORDER BY number LIMIT ?",
      this.cursor, limit).toArray();
    if (rows.length === 0) return JSON.stringify({ jobs: [] });
    const nonce = crypto.randomUUID();
    this.cursor = rows[rows.length - 1].number;
    const claim = { id: this.free.pop() ?? this.rows++, holds: new Set(rows.map((row) => row.number)) };
    this.held.set(nonce, claim);
    this.lease(nonce, claim);
    return JSON.stringify({ jobs: rows.map((row) => ({ lease: `${row.number}.${nonce}`, body: row.body })) });
  }

  ack(leases) {
    const nonces = new Set();
    for (const lease of leases) {
      const [number, nonce] = lease.split(".");
      this.sql.exec("DELETE FROM jobs WHERE number = ?", Number(number));
      this.held.get(nonce).holds.delete(Number(number));
      nonces.add(nonce);
      this.alive -= 1;
    }
    for (const nonce of nonces) {
      const claim = this.held.get(nonce);
      this.lease(nonce, claim);
      if (claim.holds.size > 0) continue;
      this.held.delete(nonce);
      this.free.push(claim.id);
    }
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
