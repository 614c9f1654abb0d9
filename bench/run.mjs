// Measures leasehold and the lock libraries it competes with, in one run.
//
//   npm run build:release                    first: the developer profile makes the addon slower
//   npm run bench                            three rounds, about a quarter of an hour
//   npm run bench -- --tables contended      only that one of uncontended, contended, quorum, seen
//   npm run bench -- --quick                 one short round
//   npm run bench -- --rows leasehold,redlock
//   npm run bench -- --rounds 5 --json       every figure, for a program
//   npm run bench -- --check                 exit code 1 if a budget does not hold
//
// Starts Redis servers of its own. Each row is measured in a process of its own, one process at a
// time. Each round begins with another row, so that the drift of a machine affects all rows.

import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { findRedis, installRedis } from '../__test__/support/redis-server.mjs'
import { startRedis } from '../__test__/support/servers.mjs'
import { haveLibraries } from './libraries.mjs'
import { listening } from './listening.mjs'
import { cpuSource } from './measure.mjs'
import { subjects } from './peers.mjs'
import { judge, render, summarize } from './table.mjs'
import { tables } from './tables.mjs'
import { voters } from './voters.mjs'
import { waiters } from './waiters.mjs'

const HERE = fileURLToPath(new URL('.', import.meta.url))

/** The candidates for the rows of each table. */
const candidates = { uncontended: subjects, contended: waiters, quorum: voters, seen: listening }

function parse() {
  const { values } = parseArgs({
    options: {
      rows: { type: 'string' },
      tables: { type: 'string' },
      rounds: { type: 'string' },
      quick: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      check: { type: 'boolean', default: false },
    },
  })
  const rounds = Number(values.rounds ?? (values.quick ? 1 : 3))
  if (!Number.isInteger(rounds) || rounds < 1) throw new Error('--rounds takes a whole number above 0')
  const wanted = values.rows?.split(',').map((name) => name.trim())
  const known = [...new Set(Object.values(candidates).flatMap((rows) => rows.map(({ name }) => name)))]
  const unknown = wanted?.filter((start) => !known.some((name) => name.startsWith(start))) ?? []
  if (unknown.length) {
    throw new Error(`no row begins with ${unknown.join(', ')}; there are: ${known.join(', ')}`)
  }
  const isWanted = ({ name }) => !wanted || wanted.some((start) => name.startsWith(start))
  const names = values.tables?.split(',').map((name) => name.trim())
  const strange = names?.filter((name) => !tables.some((table) => table.name === name)) ?? []
  if (strange.length) {
    throw new Error(`no table is called ${strange.join(', ')}; there are: ${tables.map(({ name }) => name).join(', ')}`)
  }
  const chosen = tables
    .filter(({ name }) => !names || names.includes(name))
    .map((table) => ({ table, chosen: candidates[table.name].filter(isWanted) }))
    .filter((each) => each.chosen.length > 0)
  return { ...values, rounds, chosen, effort: values.quick ? 0.2 : 1 }
}

function prepare() {
  if (!existsSync(join(HERE, '..', 'dist', 'index.js')) || !existsSync(join(HERE, '..', 'native.cjs'))) {
    throw new Error('leasehold is not built: run `npm install` or `npm run build` first')
  }
  if (!createRequire(import.meta.url)('../native.cjs').IS_OPTIMIZED) {
    throw new Error(
      'the addon was built in the developer profile, which makes it less than half as fast: run `npm run build:release` first',
    )
  }
  haveLibraries()
  const redis = findRedis() ?? installRedis()
  if (!redis)
    throw new Error('no redis-server was found: install Redis 6.2 or later, or name its program in REDIS_SERVER')
  process.env.REDIS_SERVER = redis
}

/** Measures one row once, in a new process. */
function measure(program, subject, settings) {
  const { status, signal, stdout, stderr } = spawnSync(
    process.execPath,
    [join(HERE, program), JSON.stringify({ name: subject.name, ...settings })],
    { encoding: 'utf8', timeout: 120_000, env: { ...process.env, NODE_ENV: 'production' } },
  )
  if (status !== 0) throw new Error(`${subject.name} ended with ${signal ?? status}\n${stderr}`)
  return JSON.parse(stdout)
}

/** Thaws frozen masters, and lets them finish their requests before the next row is measured. */
async function restore(masters) {
  for (const master of masters) master.thaw()
  for (const master of masters) await master.ask('FLUSHALL')
}

async function main() {
  const { chosen, rounds, effort, json, check } = parse()
  prepare()
  const cleanups = []
  const directory = mkdtempSync(join(tmpdir(), 'leasehold-bench-'))
  try {
    const t = { after: (cleanup) => cleanups.push(cleanup) }
    const redis = await startRedis(t)
    const cpu = cpuSource().name
    const processors = cpus()
    const machine = `Node ${process.version}, ${process.platform} ${process.arch}, ${processors.length} × ${processors[0]?.model ?? 'CPU'}, Redis on loopback, median of ${rounds} round${rounds > 1 ? 's' : ''}`
    const reports = []
    for (const { table, chosen: subjectsOfTable } of chosen) {
      const rows = subjectsOfTable.map(({ name, kind, setting }) => ({ name, kind, setting, rounds: [] }))
      const masters = []
      while (masters.length < (table.masters ?? 0)) masters.push(await startRedis(t))
      const told = masters.map(({ port, pid }) => ({ port, pid }))
      for (let round = 0; round < rounds; round++) {
        for (let i = 0; i < rows.length; i++) {
          const turn = (i + round) % rows.length
          console.error(`${table.name}, round ${round + 1} of ${rounds}: ${rows[turn].name}`)
          const settings = { port: redis.port, masters: told, directory, effort }
          rows[turn].rounds.push(measure(table.program, rows[turn], settings))
          await restore(masters)
        }
      }
      const summary = summarize(rows, table)
      const budgets = judge(summary, table)
      if (!json) console.log(`\n${render(summary, budgets, table, { cpu, machine })}`)
      reports.push({ table: table.name, rows: summary, budgets })
      if (check && budgets.some(({ kept }) => !kept)) process.exitCode = 1
    }
    if (json) console.log(JSON.stringify({ machine, cpu, tables: reports }, null, 2))
  } finally {
    for (const cleanup of cleanups.reverse()) await cleanup()
    rmSync(directory, { recursive: true, force: true })
  }
}

try {
  await main()
} catch (error) {
  console.error(error.message)
  process.exitCode = 1
}
