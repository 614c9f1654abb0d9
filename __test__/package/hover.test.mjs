// Checks that an editor shows the unit of every duration that the package exports.

import assert from 'node:assert/strict'
import { basename, join } from 'node:path'
import { describe, test } from 'node:test'
import { editor, hover, numbersIn, typings } from '../support/docs/durations.mjs'
import { ROOT } from '../support/docs/page.mjs'

/** The numbers that are not durations. Each other number of the typings has a unit as its type. */
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
  // An instant. Its comment has its epoch and its unit.
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

/** Match the names of durations, and the first words of comments on durations. */
const NAME_OF_DURATION = /(ttl|wait|delay|timeout|interval|drain|stall|hold|age|duration|ms|keep|trip|offset)$/i
const COMMENT_ON_DURATION = /^[^.:]*(\bms\b|how long|how much longer|seconds|when .* ends\b)/i

const all = typings()
  .filter((path) => basename(path) !== 'units.d.ts')
  .flatMap((path) => numbersIn(path))

/** Returns the names of the numbers that have no unit and are not in {@link NO_DURATIONS}. */
const unitless = (numbers) =>
  numbers.filter(({ unit, name }) => !unit && !NO_DURATIONS.includes(name)).map(({ name }) => name)

/** A program that names each duration. The test hovers over each word behind a `§`. */
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
  declare const messages: LeaseholdChannels
  const acquired = messages['tracing:leasehold:acquire:end']
  console.log(acquired.§duration, acquired.§ttl, acquired.§wait, messages['leasehold:lost'].§held)
  console.log(messages['tracing:leasehold:renew:end'].§ttl, messages['leasehold:granted'].§ttl)`
const [first, ...rest] = program.split('§')
let text = first
const positions = rest.map((words) => {
  const position = text.length
  text += words
  return [position, /^\w+/.exec(words)[0]]
})
/** The path that the editor has for the program. There is no such file. */
const PROGRAM = join(ROOT, 'docs', 'hover.mts')
const service = editor(new Map([[PROGRAM, text]]))

/** Returns a pattern for the text that the editor shows for a duration. */
const typed = (unit) => new RegExp(`: ${unit}( \\||$|\\))`)

describe('the unit of a duration', () => {
  test('the unit is the type of every number that is not listed as something else', () => {
    assert.deepEqual(unitless(all), [])
    const names = all.filter(({ unit }) => !unit).map(({ name }) => name)
    const outdated = NO_DURATIONS.filter((name) => !names.includes(name))
    assert.deepEqual(outdated, [], 'these names are listed, and no number without a unit has them')
  })

  test('the check finds durations that are declared as numbers', () => {
    const path = join(ROOT, 'types', 'new.d.ts')
    const found = numbersIn(
      path,
      `export interface New { grace?: number | undefined; readonly inner: { old: number }; renew(by: number): number }
       export type Times = [after: number | null]
       export function waitFor(time: Milliseconds, most?: number): void`,
    )
    assert.deepEqual(unitless(found), [
      'New.grace',
      'New.inner.old',
      'New.renew.by',
      'New.renew',
      'Times.after',
      'waitFor.most',
    ])
  })

  test('no number without a unit has the name or the comment of a duration', () => {
    const isDuration = ({ name, comment }) => NAME_OF_DURATION.test(name) || COMMENT_ON_DURATION.test(comment)
    const wrong = all.filter((number) => !number.unit && isDuration(number))
    assert.deepEqual(
      wrong.map(({ name }) => name),
      [],
    )
    assert.ok(all.filter((number) => number.unit && isDuration(number)).length > 30)
  })

  test('an editor shows the unit for each declaration', () => {
    const durations = all.filter(({ unit }) => unit)
    assert.ok(durations.length > 35)
    for (const { path, position, name, unit } of durations) {
      assert.match(hover(service, path, position), typed(unit), name)
    }
  })

  test('an editor shows the unit where a program names the duration', () => {
    const mistakes = service.getSemanticDiagnostics(PROGRAM).map(({ messageText }) => messageText)
    assert.deepEqual(mistakes, [])
    const seen = new Set(positions.map(([, word]) => word))
    for (const [position, word] of positions) {
      const unit = word === 'retryAfter' ? 'Seconds' : 'Milliseconds'
      assert.match(hover(service, PROGRAM, position), typed(unit), word)
    }
    // The program must name every duration.
    const names = all.filter(({ unit }) => unit).map(({ name }) => name.split('.').slice(1))
    const words = new Set(names.map(([member]) => member))
    assert.deepEqual([...words].sort(), [...seen].sort())
  })

  test('the declarations that TypeScript emits for a program have the unit', () => {
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
