// Runs a command while a lock is held.

import { EventEmitter } from 'node:events'
import type * as api from '../../index'
import { LockClient } from '../client/client'
import { LockLostError } from '../diagnostics/errors'
import { Most } from '../native/protocol'
import { MIN_TTL } from '../util/arguments'
import { formatDuration } from '../util/format-duration'
import { printed, printInBackground } from './background-output'
import { Child, type End, endAlike } from './child'
import { type Command, flag, type Given, text } from './command'
import { CliError, Exit, exitOf, UsageError } from './exits'
import { failureOf } from './failure'
import { type Guard, startGuard } from './guard'
import { parseDuration } from './parse-duration'
import { keyOf } from './shown-word'
import { Signals, STOPPING } from './signals'
import { clientOptions, openClient, STORE_OPTIONS } from './store'
import { jsonLine, messageLine, quoted, shownName } from './terminal'

/** Thrown when a signal ends the wait for the lock. Then only this process has to end. */
class EndedWhileWaiting extends Error {
  constructor(readonly signal: NodeJS.Signals) {
    super(`ended by ${signal}`)
  }
}

interface Settings {
  readonly key: string
  readonly command: readonly string[]
  readonly ttl: number | undefined
  readonly wait: number
  readonly once: boolean
  readonly maxHold: number | undefined
  /** True if only the exit code reports that another holder has the lock. */
  readonly quiet: boolean
  readonly grace: number
  /**
   * Reports what happens on standard error, as text or as JSON, if --verbose or --json asks for it.
   */
  tell(event: string, details: Record<string, unknown>, words: string): void
  /** Reports like `tell`, but also without these options. */
  warn(event: string, details: Record<string, unknown>, words: string): void
}

/**
 * How long to wait for the end of the guard at most, in ms. If this is larger, a busy machine
 * delays the exit of leasehold. If it is smaller, a guard may stay a zombie in a container whose
 * first process reaps no others.
 */
const GUARD_ENDS_WITHIN = 200

const UNGUARDED =
  'the guard ended, and no other could be started: if leasehold is killed before one starts, the command goes on without the lock'

export const run: Command = {
  name: 'run',
  synopsis: 'KEY [options] -- COMMAND [ARG…]',
  summary: 'run a command while holding a lock',
  details: `
Waits for the lock, runs the command while it holds and renews it, and releases it. On all machines that
share the store, one command with the same KEY runs at a time. The others wait in the order of their arrival.

The command gets LEASEHOLD_KEY, LEASEHOLD_FENCE and LEASEHOLD_RUN in its environment. The fence grows with
every holder, so what the command writes to can refuse a late write. The command runs without a shell; for
pipes and variables write sh -c '…'. leasehold passes signals on to it (on a terminal Ctrl-C reaches it by
itself).

If the lock is lost (the store is gone for longer than the ttl, or a user released it by force), the command
gets SIGTERM, and SIGKILL after --grace. So do all processes that it started, on Linux even if they have
left its process group or session. A daemon with an empty LEASEHOLD_RUN is left alone. --max-hold stops the
command the same way; leasehold holds the lock until the command has ended.

If leasehold itself is killed with SIGKILL, a guard ends the command the same way. The guard keeps the lock
held until the command has ended. If the command has not begun, it never runs. If the guard is killed at the same
time, the lock is free after its --ttl, on every store. On Linux, the guard also ends the command if leasehold
is stopped (SIGSTOP, Ctrl-Z) until little more than a third of the --ttl is left.

Exit code: that of the command, or the end by the same signal. 75: another holder has the lock. 69: the
store is unavailable. 70: the lock was lost, or held for --max-hold, and leasehold or its guard stopped the
command. 71: the guard could not be started, or ended before it watched the command. 64: wrong usage. 126: the
command can't be run. 127: there is no such command.`,
  examples: [
    'leasehold run nightly --try --quiet -- ./backup.sh   # from cron on every machine: one does it',
    'leasehold run deploy:web --wait 10m -- make deploy   # one deploy at a time',
    "leasehold run report -- sh -c 'psql -v fence=$LEASEHOLD_FENCE < report.sql'",
  ],
  options: {
    wait: {
      type: 'string',
      short: 'w',
      value: 'TIME',
      help: 'give up after TIME, with exit code 75. Default: never',
    },
    try: { type: 'boolean', help: 'do not wait at all: exit code 75 if another holder has the lock' },
    ttl: {
      type: 'string',
      value: 'TIME',
      help: 'how long the lock stays held if its machine fails, or leasehold and its guard are killed. Default 10s',
    },
    'max-hold': { type: 'string', value: 'TIME', help: 'stop the command when it has held the lock for TIME' },
    grace: {
      type: 'string',
      value: 'TIME',
      help: 'time from SIGTERM to SIGKILL when stopping the command. Default 5s',
    },
    verbose: { type: 'boolean', short: 'v', help: 'print on standard error what happens; --json: one object a line' },
    quiet: { type: 'boolean', short: 'q', help: 'print nothing if another holder has the lock: exit code 75 says so' },
    ...STORE_OPTIONS,
  },
  words: [1, 1],
  async run(given) {
    const settings = settingsOf(given)
    const options = clientOptions(given)
    const guard = startGuard(settings.command[0] as string, options)
    /** Emits `renewed` after each renewal of the lock. */
    const renewals = new EventEmitter()
    const signals = new Signals()
    let end: End
    let locks: LockClient | undefined
    /** The signal that ended the wait for the lock. */
    let waitEnded: NodeJS.Signals | undefined
    try {
      locks = openClient(options)
      const lease = await acquire(locks, settings, renewals, signals)
      end = await runWith(lease, settings, renewals, signals, guard)
    } catch (error) {
      if (settings.quiet && exitOf(error) === Exit.Busy) return Exit.Busy
      if (!(error instanceof EndedWhileWaiting)) throw error
      waitEnded = error.signal
      end = { code: null, signal: waitEnded }
    } finally {
      // The guard's open pipe would keep this process alive.
      guard?.dismiss()
      // If the guard ended later, it would stay a zombie where the first process reaps no others.
      await Promise.all([locks?.close(), guard?.endsWithin(GUARD_ENDS_WITHIN)])
      // An error is printed after these messages.
      await printed()
    }
    const code = endAlike(end, signals)
    // The signal may not have ended this process yet.
    if (waitEnded !== undefined)
      throw new CliError(code, `ended by ${waitEnded} while waiting for ${quoted(settings.key)}`)
    return code
  },
}

function settingsOf(given: Given): Settings {
  const key = keyOf(given.words[0], given)
  if (given.rest === undefined) {
    throw new UsageError(`what is to be run? leasehold run ${shownName(key)} -- COMMAND`)
  }
  if (given.rest.length === 0) throw new UsageError('there is no command behind --')
  const duration = (name: string, least = 0) => {
    const value = text(given, name)
    return value === undefined ? undefined : parseDuration(name, value, least)
  }
  const once = flag(given, 'try')
  const wait = duration('wait')
  if (once && wait !== undefined) throw new UsageError('--try does not wait: leave out --wait')
  const [ttl, maxHold] = [duration('ttl', MIN_TTL), duration('max-hold', MIN_TTL)]
  if (ttl !== undefined && maxHold !== undefined && maxHold < ttl) {
    throw new UsageError(`--max-hold takes no less than --ttl, which is ${text(given, 'ttl')}`)
  }
  const [json, verbose, quiet] = [flag(given, 'json'), flag(given, 'verbose'), flag(given, 'quiet')]
  if (quiet && (json || verbose)) throw new UsageError(`--quiet and --${json ? 'json' : 'verbose'} exclude each other`)
  const say = (event: string, details: Record<string, unknown>, words: string) => {
    const line = json ? jsonLine({ at: new Date().toISOString(), event, key, ...details }) : messageLine(words)
    printInBackground(line)
  }
  return {
    ...{ key, command: given.rest, once, wait: wait ?? Number.POSITIVE_INFINITY },
    ...{ ttl, maxHold, quiet, grace: duration('grace') ?? 5_000 },
    tell: json || verbose ? say : () => {},
    warn: say,
  }
}

async function acquire(
  locks: LockClient,
  settings: Settings,
  renewals: EventEmitter,
  signals: Signals,
): Promise<api.Lease> {
  const { key, once, wait, tell } = settings
  const gone = new AbortController()
  let ended: NodeJS.Signals | undefined
  signals.listen((signal) => {
    // The other signals are for the command, which does not run yet.
    if (!STOPPING.includes(signal)) return
    ended = signal
    gone.abort()
  })
  const options: api.TryAcquireOptions = { signal: gone.signal }
  if (settings.ttl !== undefined) options.ttl = settings.ttl
  // The command may outlive this process. The store must not free the lock before the guard has
  // taken it over.
  const acquirer = LockClient.acquirerOf(locks).outliving(() => renewals.emit('renewed'))
  const start = performance.now()
  try {
    if (!once) tell('waiting', {}, `waiting for ${quoted(key)}`)
    const lease = once ? await acquirer.tryAcquire(key, options) : await acquirer.acquire(key, { ...options, wait })
    if (lease === null) throw new CliError(Exit.Busy, `another holder has ${quoted(key)}; to wait, omit --try`)
    if (ended !== undefined) {
      // The signal came after the lock was granted.
      await lease.release().catch(() => {})
      gone.signal.throwIfAborted()
    }
    const waited = performance.now() - start
    tell('acquired', { fence: lease.fence, waited }, `acquired, fence ${lease.fence}, after ${formatDuration(waited)}`)
    return lease
  } catch (error) {
    throw ended === undefined ? error : new EndedWhileWaiting(ended)
  }
}

/** Runs the command. Resolves when the command is gone and the lock is released. */
async function runWith(
  lease: api.Lease,
  settings: Settings,
  renewals: EventEmitter,
  signals: Signals,
  guard: Guard | undefined,
): Promise<End> {
  const { key, command, maxHold, tell, warn } = settings
  const env = { ...process.env, LEASEHOLD_KEY: key, LEASEHOLD_FENCE: String(lease.fence) }
  const { token, fence, ttl } = lease
  const ticket = { key, token, fence, ttl, most: Most.Exclusive }
  let child: Child | undefined
  /** True when the command has begun. */
  let runs = false
  /** Why this process stops the command. */
  let why: { error: unknown; isLoss?: boolean } | undefined
  const stop = (error: unknown, isLoss = false) => {
    why ??= { error, isLoss }
    child?.stop()
  }
  const lost = async () => {
    // If this process was stopped, the command may have ended by itself meanwhile.
    await polled()
    if (child?.isOver) return
    const loss = lease.signal.reason as LockLostError
    stop(new CliError(Exit.Lost, `the lock was lost while the command ran: ${loss.message}`, { cause: loss }), true)
    tell('lost', { reason: loss.reason }, `lost (${loss.reason}): stopping the command`)
  }
  const guardEnding = () => {
    const until = 'leasehold was stopped (SIGSTOP) until its lock'
    const what = runs ? 'the guard stopped the command' : 'the command was not run'
    // The guard has taken the lock over, so this explains the loss.
    if (why?.isLoss) why = undefined
    stop(new CliError(Exit.Lost, `${until} ${quoted(key)} was about to end: ${what}; run it again`))
  }
  // The lease has no `maxHold`, because it would then end while the command still cleans up.
  const overdue = async () => {
    await polled()
    if (child?.isOver) return
    const [limit, name] = [formatDuration(maxHold as number), quoted(key)]
    const message = runs
      ? `stopped the command: it held ${name} for ${limit} (--max-hold)`
      : `${name} was held for ${limit} (--max-hold) before the command could start: give it more time`
    stop(new CliError(Exit.Lost, message))
    tell('overdue', {}, `held for ${limit} (--max-hold): stopping the command`)
  }
  const timer = maxHold === undefined ? undefined : setTimeout(overdue, maxHold)
  // An uncaught error would end this process and free the lock while the command still works.
  const failed = (error: unknown) => stop(error)
  process.on('uncaughtException', failed)
  try {
    lease.assertHeld()
    child = new Child(command, env, { ticket, grace: settings.grace }, lease, signals, guard)
    renewals.on('renewed', () => child?.renewed())
    child.guardEnding.then(guardEnding)
    guard?.absent.then(() => warn('unguarded', {}, UNGUARDED))
    const { pid } = child
    child.started.then(() => {
      runs = true
      // The guard may answer after the command was asked to stop.
      if (why === undefined) tell('started', { pid }, `the command runs as ${pid}`)
    })
    if (lease.signal.aborted) lost()
    else lease.signal.addEventListener('abort', lost, { once: true })
    const end = await child.ended
    // If this process was stopped, the guard's line may have arrived without being read yet.
    if (why?.isLoss) await polled()
    tell('ended', { ...end }, `the command ended: ${end.signal ?? `exit code ${end.code}`}`)
    if (why !== undefined) throw why.error
    return end
  } finally {
    clearTimeout(timer)
    process.off('uncaughtException', failed)
    lease.signal.removeEventListener('abort', lost)
    // Release the lock also after an error, so that the next waiter gets it at once. If the release
    // fails, the lock ends with its ttl.
    await lease.release().catch((error) => unreleased(error, settings))
  }
}

/** Resolves when the event loop has read all input that has arrived. */
async function polled(): Promise<void> {
  for (let phase = 0; phase < 2; phase++) await new Promise((resolve) => setImmediate(resolve))
}

function unreleased(error: unknown, { warn }: Settings): void {
  // The command has ended. If the lock was lost in the last moment, the command has not failed.
  if (error instanceof LockLostError) return
  warn(
    'unreleased',
    { error: failureOf(error) },
    `the lock could not be released, and ends with its ttl: ${(error as Error).message}`,
  )
}
