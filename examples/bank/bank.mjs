// Shows why a lock is not enough without a fence. One teller is frozen just before it writes, its
// lease expires, another teller gets the locks, and then the first one continues.
//
//   node bank.mjs                               on the embedded store
//   node bank.mjs --store redis://127.0.0.1     on Redis
//   node bank.mjs --ttl 3000                    with longer leases (default 1000 ms)

import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { Clerk } from './clerk.mjs'
import { Vault } from './vault.mjs'

const BEFORE = { anna: 100, ben: 0, cleo: 100 }
const TOTAL = 200

/** Runs the first transfer, and the second one while the first is frozen. Returns the vault. */
async function play({ store, ttl, withFences }) {
  const start = performance.now()
  const say = (who, what) =>
    console.log(`${((performance.now() - start) / 1000).toFixed(2).padStart(6)} s  ${who.padEnd(6)} ${what}`)
  const vault = new Vault(BEFORE)
  const [one, two] = ['one', 'two'].map((name) => new Clerk({ store, ttl, name, withFences }, vault))
  const failure = Promise.race(
    [one, two].map((clerk) => once(clerk, 'failure').then(([error]) => Promise.reject(error))),
  )
  /** Resolves when the clerk has emitted the event. */
  const happened = (clerk, event) => Promise.race([once(clerk, event), failure])
  try {
    await Promise.all([happened(one, 'started'), happened(two, 'started')])
    for (const clerk of [one, two]) {
      clerk.on('written', () => say(clerk.name, `has written: ${vault}`))
      clerk.on('failed', ({ name, message }) => say(clerk.name, `${name}: ${message}`))
    }
    say('vault', `${vault}`)

    one.order({ from: 'anna', to: 'ben', amount: 30, isPaused: true })
    await happened(one, 'ready')
    say('one', 'moves 30 from anna to ben: has the locks, has read, has checked that it holds them')
    one.freeze()
    say('one', 'is frozen before it writes (SIGSTOP)')

    two.order({ from: 'cleo', to: 'anna', amount: 50 })
    await happened(two, 'ready')
    say('two', 'moves 50 from cleo to anna: has the locks, because the lease of one expired')
    await happened(two, 'done')

    const done = happened(one, 'done')
    say('one', 'continues (SIGCONT)')
    one.thaw()
    await done
    await Promise.all([one.end(), two.end()])
    return vault
  } finally {
    one.kill()
    two.kill()
  }
}

function settingsOf(words) {
  const options = { store: { type: 'string' }, ttl: { type: 'string', default: '1000' } }
  const { store, ttl } = parseArgs({ args: words, options }).values
  return { store, ttl: Number(ttl) }
}

async function main() {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-bank-'))
  const { store = `sqlite:${join(folder, 'locks.db')}`, ttl } = settingsOf(process.argv.slice(2))
  try {
    if (store.startsWith('memory:')) throw new Error('memory: is the store of one process only; these are several')
    console.log('Without fences, the vault accepts every write:')
    const trusting = await play({ store, ttl, withFences: false })
    console.log(`${trusting.total} of ${TOTAL} are left: the 50 that two brought were overwritten.\n`)

    console.log('With fences, the vault refuses a write under an older lease:')
    const careful = await play({ store, ttl, withFences: true })
    const isWhole = careful.total === TOTAL
    console.log(`${careful.total} of ${TOTAL} are there${isWhole ? ', and both transfers were made' : ''}.`)
    process.exitCode = isWhole ? 0 : 1
  } finally {
    rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
  }
}

if (process.platform === 'win32') {
  console.error('This example freezes a process with SIGSTOP, which Windows does not have.')
  process.exitCode = 1
} else {
  await main().catch((error) => {
    console.error(error.message)
    process.exitCode = 1
  })
}
