// A process that transfers money from one account to another, under the locks of both.
//
// It sends two kinds of messages to the process that started it: { ask, id, words } is a call that
// is answered as a database would answer, and { event, … } reports what the process does.

import { createLockClient } from 'leasehold'

const { store, ttl, name, withFences } = JSON.parse(process.argv[2])
const tell = (event, details) => process.send({ event, ...details })

/** Opens the client. Reports now, not at the first transfer, if the store can't be used. */
async function open() {
  try {
    const client = createLockClient({ store, ttl, name })
    await client.ready()
    return client
  } catch ({ message }) {
    tell('given up', { message })
    return process.disconnect()
  }
}

const asked = new Map()
let goOn
/** Resolves when the parent process tells this one to go on. */
const wait = () =>
  new Promise((resolve) => {
    goOn = resolve
  })

/** Calls the vault. Resolves with its answer, or rejects with its refusal. */
function ask(what, ...words) {
  const id = asked.size + 1
  process.send({ ask: what, id, words })
  return new Promise((resolve, reject) => asked.set(id, { resolve, reject }))
}

class InsufficientFundsError extends Error {}

async function transfer({ from, to, amount, isPaused }) {
  const keys = [from, to].map((id) => `account:${id}`)
  await locks.withLock(keys, { wait: 30_000 }, async (leases) => {
    const { [from]: source, [to]: target } = await ask('read', [from, to])
    if (source < amount) throw new InsufficientFundsError(`${from} has only ${source}`)
    const balances = { [from]: source - amount, [to]: target + amount }

    // The leases are held now. But the process may be paused between any check and the write: by
    // the scheduler, a garbage collection, or a virtual machine that moves. Here bank.mjs does that
    // on purpose.
    leases.assertHeld()
    tell('ready')
    if (isPaused) await wait()

    const fences = Object.fromEntries([from, to].map((id, i) => [id, leases.fences[keys[i]]]))
    await ask('write', balances, withFences ? fences : undefined)
    tell('written')
  })
}

/**
 * Repeats the transfer until it is done. After a refusal, it starts again from the current
 * balances.
 */
async function run(order) {
  for (let isPaused = order.isPaused; ; isPaused = false) {
    try {
      await transfer({ ...order, isPaused })
      return tell('done')
    } catch (error) {
      const { code, message } = error
      tell('failed', { name: error.name, message })
      // The error comes after the write, which is too late.
      if (code === 'ERR_LOCK_LOST') return tell('done')
      if (error.name !== 'StaleFenceError') return tell('given up', { message })
    }
  }
}

process.on('message', async ({ order, answer, error, id, end }) => {
  if (order) run(order)
  else if (id) {
    const { resolve, reject } = asked.get(id)
    if (error) reject(Object.assign(new Error(error.message), { name: error.name }))
    else resolve(answer)
  } else if (end) {
    await locks.close()
    process.disconnect()
  } else goOn()
})

const locks = await open()
if (locks) tell('started')
