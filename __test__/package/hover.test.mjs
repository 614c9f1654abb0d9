// Checks that an editor shows the unit of every duration that the package exports.

import assert from 'node:assert/strict'
import { basename, join } from 'node:path'
import { describe, test } from 'node:test'
import { editor, hover, numbersIn, typings } from '../support/docs/durations.mjs'
import { ROOT } from '../support/docs/page.mjs'

/** The numbers that are no durations. Each other number of the typings has a unit as its type. */
const NO_DURATIONS = [
  // Counts.
  'Semaphore.permits',
  'LockClient.semaphore.permits',
  'RetryOptions.retries',
  'AcquireMessage.tries',
  'LeaseMessage.renewals',
  'LockClientOptions.minReplicas',
  'LockClientOptions.handOffs',
  'RequestLockOptions.maxKeys',
  'LockInfo.waiting',
  'LockTimeoutError.waiters',
  'LockTimeoutErrorOptions.waiters',
  'ListOptions.limit',
  'LeaseInfo.servers.held',
  'LeaseInfo.servers.total',
  'LeaseInfo.servers.unheard',
  'StoreHealth.failures',
  'Emitter.listenerCount',
  'Emitter.setMaxListeners.n',
  'Emitter.getMaxListeners',
  ...['held', 'waiting', 'acquired', 'waited', 'localHandOffs', 'remoteHandOffs', 'released', 'detached', 'lost'].map(
    (name) => `LockStats.${name}`,
  ),
  ...['contended', 'timeouts', 'aborted', 'renewals', 'errors'].map((name) => `LockStats.${name}`),
  // An instant. Its comment says from when it counts, and in which unit.
  'StoreHealth.since',
  // Factors.
  'RetryOptions.factor',
  'RetryOptions.jitter',
  // Fences.
  'Lease.fence',
  'MultiLease.fences',
  'LeaseInfo.fence',
  'AcquireMessage.fence',
  'LeaseMessage.fence',
]

/** Match a name, and the first words of a comment, that speak of a duration. */
const NAME_OF_DURATION = /(ttl|wait|delay|timeout|interval|drain|stall|hold|age|duration|ms|keep|trip|offset)$/i
const COMMENT_ON_DURATION = /^[^.:]*(\bms\b|how long|how much longer|seconds|when .* ends\b)/i

const all = typings()
  .filter((path) => basename(path) !== 'units.d.ts')
  .flatMap((path) => numbersIn(path))

/** Returns the names of the numbers that have no unit and are not listed as something else. */
const unitless = (numbers) =>
  numbers.filter(({ unit, name }) => !unit && !NO_DURATIONS.includes(name)).map(({ name }) => name)

/** A program that names each duration. The pointer is on each word behind a `§`. */
const program = `
  import { createServer } from 'node:http'
  import { createLockClient, createLockWorker, type LeaseholdChannels, LockTimeoutError } from 'leasehold'
  import { lockRequest } from 'leasehold/express'
  import { instrument } from 'leasehold/otel'
  import { withRequestLock } from 'leasehold/remix'

  const locks = createLockClient({ §ttl: 5, §wait: 5, §maxStall: 500, §storeTimeout: 50, §drain: 5 })
  const lease = await locks.acquire('key', { §ttl: 50, §wait: 5, §maxHold: 50, retry: { §minDelay: 5, §maxDelay: 5 } })
  await locks.tryAcquire(['a', 'b'], { §ttl: 50, §maxHold: 50 })
  await locks.withLock('key', { §wait: 5 }, (held) => held.§remaining)
  await locks.semaphore('key', 2).tryAcquire({ §ttl: 50 })
  const left = lease.§remaining - lease.§ttl
  lease.§renew(left)
  lease.§detach(left)
  await locks.acquire(['a']).then((leases) => leases.§renew(leases.§remaining))
  await locks.adopt('ticket', { §ttl: 50, §maxHold: 50 })
  await locks.once('key', 'id', () => {}, { §keep: 50, §ttl: 50, §wait: 5 })
  locks.schedule('name', '@daily', () => {}, { §catchUp: 1000, §keep: 5000, §ttl: 50 })
  const { §waitMs, §longestWaitMs } = locks.stats()
  const [{ §roundTrip, §clockOffset }] = (await locks.diagnose()).stores
  const info = await locks.inspect('key')
  console.log(info?.§remaining, info?.leases[0].§remaining, info?.waiters[0].§age)
  createLockWorker({ key: 'key', startWork() {}, §ttl: 50, §retryInterval: 5, §stopTimeout: 5 }).lease?.§ttl
  locks.close({ §drain: 0 })
  console.log(new LockTimeoutError('', { §heldFor: 5 }).§heldFor)
  createServer(lockRequest(locks, { key: () => 'key', §ttl: 50, §wait: 5, §maxHold: 50, retry: { §minDelay: 5 } }))
  lockRequest(locks, { key: () => 'key', onBusy: ({ §retryAfter }) => retryAfter })
  withRequestLock(locks, { key: (request: Request) => 'key', §wait: 5, §maxHold: 50 }, (held) => held.§ttl)
  instrument(locks, { §inspectAfter: 5 })
  declare const told: LeaseholdChannels
  const acquired = told['tracing:leasehold:acquire:end']
  console.log(acquired.§duration, acquired.§ttl, acquired.§wait, told['leasehold:lost'].§held)
  console.log(told['tracing:leasehold:renew:end'].§ttl, told['leasehold:granted'].§ttl)`
const [first, ...rest] = program.split('§')
let text = first
const positions = rest.map((words) => {
  const position = text.length
  text += words
  return [position, /^\w+/.exec(words)[0]]
})
/** Where the editor has the program. There is no such file. */
const PROGRAM = join(ROOT, 'docs', 'hover.mts')
const service = editor(new Map([[PROGRAM, text]]))

/** Matches what the editor shows for a duration. */
const typed = (unit) => new RegExp(`: ${unit}( \\||$|\\))`)

describe('the unit of a duration', () => {
  test('is the type of every number that is not listed as something else', () => {
    assert.deepEqual(unitless(all), [])
    const names = all.filter(({ unit }) => !unit).map(({ name }) => name)
    const gone = NO_DURATIONS.filter((name) => !names.includes(name))
    assert.deepEqual(gone, [], 'these are listed, and are no numbers without a unit')
  })

  test('is missed where a duration is declared as a number', () => {
    const path = join(ROOT, 'types', 'new.d.ts')
    const found = numbersIn(
      path,
      `export interface New { grace?: number | undefined; readonly inner: { old: number }; renew(by: number): number }
       export type Told = [after: number | null]
       export function waitFor(time: Milliseconds, most?: number): void`,
    )
    assert.deepEqual(unitless(found), [
      'New.grace',
      'New.inner.old',
      'New.renew.by',
      'New.renew',
      'Told.after',
      'waitFor.most',
    ])
  })

  test('is not missing where the name or the comment speaks of a duration', () => {
    const speaks = ({ name, comment }) => NAME_OF_DURATION.test(name) || COMMENT_ON_DURATION.test(comment)
    const wrong = all.filter((one) => !one.unit && speaks(one))
    assert.deepEqual(
      wrong.map(({ name }) => name),
      [],
    )
    assert.ok(all.filter((one) => one.unit && speaks(one)).length > 30)
  })

  test('is shown for each declaration', () => {
    const durations = all.filter(({ unit }) => unit)
    assert.ok(durations.length > 35)
    for (const { path, position, name, unit } of durations) {
      assert.match(hover(service, path, position), typed(unit), name)
    }
  })

  test('is shown where a program names the duration', () => {
    const mistakes = service.getSemanticDiagnostics(PROGRAM).map(({ messageText }) => messageText)
    assert.deepEqual(mistakes, [])
    const seen = new Set(positions.map(([, word]) => word))
    for (const [position, word] of positions) {
      const unit = word === 'retryAfter' ? 'Seconds' : 'Milliseconds'
      assert.match(hover(service, PROGRAM, position), typed(unit), word)
    }
    // A new duration has to be in the program, too.
    const names = all.filter(({ unit }) => unit).map(({ name }) => name.split('.').slice(1))
    const words = new Set(names.map(([member]) => member))
    assert.deepEqual([...words].sort(), [...seen].sort())
  })

  test('stands in the declarations that TypeScript writes for a program', () => {
    const path = join(ROOT, 'docs', 'emitted.mts')
    const source = `
      import type { Lease, LockInfo } from 'leasehold'
      export const left = (lease: Lease) => lease.remaining
      export const leftOf = (info: LockInfo | null) => info?.remaining ?? undefined
      export const later = async (lease: Lease, isLate: boolean) => ({ ttl: isLate ? lease.ttl : 'none' })`
    const [{ text }] = editor(new Map([[path, source]])).getEmitOutput(path, true, true).outputFiles
    const types = text.split('\n').flatMap((line) => /(?:=> |ttl: )(.*);$/.exec(line)?.[1] ?? [])
    assert.deepEqual(types, [
      'import("leasehold").Milliseconds',
      'import("leasehold").Milliseconds | undefined',
      'string | import("leasehold").Milliseconds',
    ])
  })
})
