// Runs one scenario of node-postgres against a pooler and exits with 0 where all was right: node check.js SCENARIO URI.
// Started by tests/e2e/test_drivers.py, which also starts the pooler; --list names the scenarios.
'use strict'

const assert = require('node:assert/strict')
const { pipeline } = require('node:stream/promises')
const { Readable } = require('node:stream')
const { setTimeout: sleep } = require('node:timers/promises')
const { Client, Pool } = require('pg')
const Cursor = require('pg-cursor')
const { from: copyFrom, to: copyTo } = require('pg-copy-streams')

const scenarios = { simple, prepared, transactions, failures, copy, cancel, crowd, large, notices, parameters, console: console_ }

async function main([name, uri]) {
  if (name === '--list') return console.log(Object.keys(scenarios).join('\n'))
  assert.ok(name in scenarios && uri, 'usage: check.js SCENARIO URI | --list')
  const late = setTimeout(() => {
    console.error(`${name} took too long`)
    process.exit(1)
  }, 60_000)
  await scenarios[name](uri)
  clearTimeout(late)
}

async function connected(uri, work, settings = {}) {
  const client = new Client({ connectionString: uri, ...settings })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

async function value(client, text, values) {
  const { rows } = await client.query({ text, values, rowMode: 'array' })
  return rows[0][0]
}

const refused = (code) => (error) => error.code === code

// --- the scenarios --------------------------------------------------------------------------------------------

async function simple(uri) {
  await connected(uri, async (client) => {
    for (let number = 0; number < 50; number++) assert.equal(await value(client, `select ${number}`), number)
    const results = await client.query('select 1 as a; select 2 as a; select 3 as a')
    assert.deepEqual(results.map((result) => result.rows[0].a), [1, 2, 3])
  })
}

async function prepared(uri) {
  await connected(uri, (one) =>
    connected(uri, async (two) => {
      for (let number = 0; number < 100; number++) {
        const first = await one.query({ name: 'same name', text: 'select $1::int4 * 2 as a', values: [number] })
        const second = await two.query({ name: 'same name', text: "select $1::text || '!' as a", values: ['ü'] })
        assert.equal(first.rows[0].a, number * 2)
        assert.equal(second.rows[0].a, 'ü!')
        assert.equal(await value(one, 'select $1::int4', [number]), number) // without a name
      }
    }),
  )
}

async function transactions(uri) {
  await connected(uri, (one) =>
    connected(uri, async (two) => {
      await one.query('drop table if exists node_kept; create table node_kept (number int4)')
      for (const [number, end] of [[0, 'rollback'], [1, 'commit']]) {
        await one.query('begin')
        await one.query({ name: 'keep', text: 'insert into node_kept values ($1)', values: [number] })
        await one.query(end)
      }
      assert.equal(await value(two, "select string_agg(number::text, ',') from node_kept"), '1')
    }),
  )
}

async function failures(uri) {
  await connected(uri, async (client) => {
    const divided = { name: 'divided', text: 'select 100 / $1::int4 as a' }
    for (let round = 0; round < 20; round++) {
      // Queued without waiting: each has an answer of its own, the one in the middle an error.
      const answers = await Promise.allSettled([5, 0, 4].map((by) => client.query({ ...divided, values: [by] })))
      assert.deepEqual(answers.map((answer) => answer.value?.rows[0].a ?? answer.reason.code), [20, '22012', 25])
    }
    await assert.rejects(client.query({ name: 'bad', text: 'select nonsense from nowhere' }), refused('42P01'))
    await assert.rejects(client.query({ name: 'bad', text: 'select nonsense from nowhere' }), refused('42P01'))
    await client.query('begin')
    await assert.rejects(client.query({ ...divided, values: [0] }), refused('22012'))
    await assert.rejects(client.query('select 1'), refused('25P02'))
    await client.query('rollback')
    assert.equal(await value(client, 'select 1'), 1)
  })
}

async function copy(uri) {
  await connected(uri, async (client) => {
    await client.query('drop table if exists node_copied; create table node_copied (number int4, word text)')
    const lines = Array.from({ length: 20_000 }, (_, number) => `${number}\t${'w'.repeat(number % 100)}\n`)
    await pipeline(Readable.from(lines), client.query(copyFrom('copy node_copied from stdin')))
    let bytes = ''
    for await (const chunk of client.query(copyTo('copy (select * from node_copied order by 1) to stdout'))) bytes += chunk
    assert.equal(bytes, lines.join(''))
    const bad = pipeline(Readable.from(['no number\tx\n']), client.query(copyFrom('copy node_copied from stdin')))
    await assert.rejects(bad, refused('22P02'))
    assert.equal(await value(client, 'select count(*)::int4 from node_copied'), 20_000)
  })
}

async function cancel(uri) {
  await connected(uri, (client) =>
    connected(uri, async (other) => {
      const asked = client.query("select pg_sleep(60) /* node */")
      const ended = asked.catch((error) => error)
      const running = "select count(*)::int4 from pg_stat_activity where query like '%/* node */' and wait_event = 'PgSleep'"
      while ((await value(other, running)) === 0) await sleep(20)
      const canceller = new Client({ connectionString: uri })
      canceller.cancel(client, client.activeQuery)
      assert.equal((await ended).code, '57014')
      assert.equal(await value(client, 'select 1'), 1)
    }),
  )
}

// Far more clients than servers, all with the same names.
async function crowd(uri) {
  const pool = new Pool({ connectionString: uri, max: 30 })
  const work = async (_, client) => {
    const held = await pool.connect()
    for (let round = 0; round < 20; round++) {
      await held.query('begin')
      const { rows } = await held.query({ name: 'a', text: 'select $1::int4 + $2::int4 as a', values: [round, client] })
      assert.equal(rows[0].a, round + client)
      await held.query('commit')
    }
    held.release()
  }
  await Promise.all(Array.from({ length: 30 }, work))
  await pool.end()
}

async function large(uri) {
  await connected(uri, async (client) => {
    const text = 'ü'.repeat(5_000_000)
    assert.equal(await value(client, 'select $1::text', [text]), text)
    await client.query('begin')
    const cursor = client.query(new Cursor("select repeat('x', 1000) as a from generate_series(1, 20000)"))
    let count = 0
    for (let rows = await cursor.read(700); rows.length > 0; rows = await cursor.read(700)) {
      count += rows.filter((row) => row.a.length === 1000).length
    }
    await cursor.close()
    await client.query('commit')
    assert.equal(count, 20_000)
  })
}

async function notices(uri) {
  await connected(uri, async (client) => {
    const heard = []
    client.on('notice', (notice) => heard.push(notice.message))
    await client.query("do $$ begin raise notice 'one'; raise warning 'two'; end $$")
    assert.deepEqual(heard, ['one', 'two'])
  })
}

// What a client sets of itself follows it, and no other client.
async function parameters(uri) {
  const current = (client, name) => value(client, `select current_setting('${name}')`)
  const both = async (one, two) => {
    await two.query("set timezone to 'Asia/Tokyo'")
    for (let round = 0; round < 10; round++) {
      assert.equal(await current(one, 'application_name'), 'first')
      assert.equal(await current(two, 'application_name'), 'second')
      assert.equal(await current(two, 'timezone'), 'Asia/Tokyo')
    }
    await one.query("set application_name to 'renamed'")
    assert.equal(await current(two, 'application_name'), 'second')
    assert.equal(await current(one, 'application_name'), 'renamed')
    assert.notEqual(await current(one, 'timezone'), 'Asia/Tokyo')
  }
  const named = (name, work) => connected(uri, work, { application_name: name })
  await named('first', (one) => named('second', (two) => both(one, two)))
}

// What exporters ask of the console, by both protocols.
async function console_(uri) {
  await connected(uri, async (client) => {
    for (const view of 'STATS POOLS DATABASES LISTS CONFIG CLIENTS USERS TOTALS STATE VERSION'.split(' ')) {
      const simple = await client.query(`SHOW ${view}`)
      const named = await client.query({ name: view, text: `SHOW ${view}` })
      const again = await client.query({ name: view, text: `SHOW ${view}` })
      assert.ok(simple.rows.length > 0)
      assert.deepEqual(Object.keys(named.rows[0]), Object.keys(simple.rows[0]))
      assert.equal(again.rows.length, named.rows.length)
    }
    await assert.rejects(client.query({ name: 'bad', text: 'SHOW NONSENSE' }), refused('42601'))
    assert.match(await value(client, 'SHOW VERSION'), /^PgBouncer/)
  })
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error)
  process.exit(1)
})
