// Fuzz targets: the client accepts only well-formed tickets, and no ticket changes a lease.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import fc from 'fast-check'
import { createLockClient, LockError } from 'leasehold'
import { readTicket, writeTicket } from '../../dist/lock/ticket.js'
import { atEnd } from '../support/endings.mjs'
import { edits, fuzz, samplesOf, withEdits } from '../support/fuzzing.mjs'

const FIELDS = ['v', 'key', 'token', 'fence', 'ttl', 'most']
const TTL = 60_000

const encode = (json) => Buffer.from(json).toString('base64url')
const decode = (ticket) => Buffer.from(ticket, 'base64url').toString()

/** Generates values for a changed field. */
const value = fc.oneof(
  fc.constantFrom(0, -1, 1, 0.5, 10, 2_147_483_647, 2_147_483_648, 4_294_967_295, 4_294_967_296, 2 ** 53, 1e300),
  fc.constantFrom('', 'a', '{a}:fence', 'a\0', '\ud800', null, true, [], {}),
  fc.jsonValue(),
  fc.string({ unit: 'binary', maxLength: 40 }),
)

/** Generates functions that change the characters, the JSON, or one field of a ticket. */
const change = fc.oneof(
  edits.map((edits) => (ticket) => withEdits(ticket, edits)),
  edits.map((edits) => (ticket) => encode(withEdits(decode(ticket), edits))),
  fc.tuple(fc.constantFrom(...FIELDS), value).map(([name, value]) => (ticket) => {
    try {
      return encode(JSON.stringify({ ...JSON.parse(decode(ticket)), [name]: value }))
    } catch {
      return encode(JSON.stringify({ [name]: value }))
    }
  }),
)
const sample = fc.constantFrom(...samplesOf('tickets').map(([, text]) => text))
/** Generates arbitrary texts and changed samples. */
const texts = fc.oneof(
  { weight: 1, arbitrary: fc.string({ unit: 'binary' }) },
  { weight: 6, arbitrary: fc.tuple(sample, change).map(([ticket, change]) => change(ticket)) },
)

/**
 * Asserts that the error contains no part of the ticket. Eight characters in a row could be a part
 * of the secret.
 */
function assertOwn(error, ticket) {
  assert.ok(error instanceof TypeError, `${error?.stack}`)
  assert.match(error.code, /^ERR_INVALID_ARG_(VALUE|TYPE)$/)
  const text = ticket + decode(ticket)
  for (let i = 0; i + 8 <= text.length; i++) {
    const part = text.slice(i, i + 8)
    // Words of the message itself may also be in a ticket.
    if (!/^[a-z "()]+$/i.test(part)) assert.ok(!error.message.includes(part), error.message)
  }
}

function assertWellFormed(ticket, read) {
  const { v, ...fields } = JSON.parse(decode(ticket))
  const { key, token, fence, ttl, most } = read
  assert.equal(v, 1)
  assert.match(ticket, /^[A-Za-z0-9_-]{1,16384}$/)
  assert.deepEqual(read, { key, token, fence, ttl, most }, 'the ticket has other fields')
  for (const [name, value] of Object.entries(read)) assert.equal(fields[name], value)
  assert.match(token, /^[0-9a-f-]{36}$/)
  assert.equal(token.replaceAll('-', '').length, 32)
  assert.ok(typeof key === 'string' && key.isWellFormed() && !key.includes('\0'))
  assert.ok(key !== '' && Buffer.byteLength(key) <= 1024)
  for (const [number, min, max] of [
    [fence, 1, 7_300_000_000_000_000],
    [ttl, 10, 2 ** 31 - 1],
    [most, 0, 2 ** 32 - 1],
  ]) {
    assert.ok(Number.isSafeInteger(number) && number >= min && number <= max, `${number}`)
  }
  assert.deepEqual(readTicket(writeTicket(read)), read)
}

test('no text is a ticket unless it is well-formed', async () => {
  let accepted = 0
  await fuzz('tickets', 4_000, texts, async (ticket) => {
    let read
    try {
      read = readTicket(ticket)
    } catch (error) {
      return assertOwn(error, ticket)
    }
    accepted++
    assertWellFormed(ticket, read)
  })
  assert.ok(accepted > 0, 'no ticket was accepted')
})

test('only a string is a ticket', () => {
  fc.assert(
    fc.property(fc.anything(), (given) => {
      if (typeof given === 'string') return
      assert.throws(() => readTicket(given), { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' })
    }),
  )
})

test('a changed ticket gets its lease unchanged, or no lease', async (t) => {
  const store = `memory:${randomUUID()}`
  const [holder, adopter] = [createLockClient(store), createLockClient(store)]
  atEnd(t, () => Promise.all([holder.close(), adopter.close()]))
  const other = await holder.acquire('other', { ttl: TTL })
  const lease = await holder.acquire('ключ {b}', { ttl: TTL })
  // The current ticket of the lease. Each adoption makes a new one.
  let live = await lease.detach(TTL)
  let adoptions = 0
  const check = async (ticket) => {
    const { token } = JSON.parse(decode(live))
    const adopted = await adopter.adopt(ticket).catch((error) => {
      if (!(error instanceof LockError)) assertOwn(error, ticket)
      assert.ok(!error.message.includes(token))
    })
    const info = await adopter.inspect(lease.key)
    assert.equal(info?.fence, lease.fence)
    assert.equal(info.shared, false)
    assert.ok(other.isHeld)
    if (!adopted) return
    adoptions++
    assert.equal(adopted.key, lease.key)
    assert.equal(adopted.fence, lease.fence)
    assert.ok(adopted.ttl <= TTL, `${adopted.ttl}`)
    // Without this renewal, a smaller ttl of the adopter would be that of the next ticket.
    await adopted.renew(TTL)
    live = await adopted.detach(TTL)
  }
  const changes = fc.oneof(
    texts.map((text) => () => text),
    change,
  )
  const numRuns = Number(process.env.LEASEHOLD_FUZZ_CASES ?? 1_000)
  await fc.assert(
    fc.asyncProperty(changes, async (change) => {
      const ticket = change(live)
      await check(ticket).catch((error) => {
        throw new Error(`${error.message}: ${decode(ticket)}`, { cause: error })
      })
    }),
    { numRuns },
  )
  // The refused tickets have not used up the lease.
  const adopted = await adopter.adopt(live)
  assert.equal(adopted.fence, lease.fence)
  assert.ok(adoptions > 0 || numRuns < 100, 'no ticket was accepted')
})
