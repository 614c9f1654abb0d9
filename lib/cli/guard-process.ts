// The guard's process, as leasehold sees it (guard-main.ts). It reads lines from a pipe whose other
// end only this process has, and answers lines with lines.

import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { UNMARKED } from './mark'
import { ENDING, OVER } from './takeover'

const PROGRAM = join(__dirname, 'guard-main.js')
/** The last word names the guard in a list of processes until it has set its title. */
const ARGUMENTS = [...(process.versions.deno ? ['run', '-A'] : []), PROGRAM, 'leasehold-guard']

export class GuardProcess {
  readonly #process: ChildProcess
  /** True until the guard has answered the last line. Also true before {@link begin}. */
  #isAwaited = true
  /** The report to send after that answer. */
  #next: string | undefined
  /** Whether {@link begin} was called. */
  #hasBegun = false
  #isGone = false
  #tellEnding = () => {}
  /** Resolves when the guard says that it ends the command, because this process was stopped. */
  readonly ending = new Promise<void>((resolve) => {
    this.#tellEnding = resolve
  })
  /** Resolves when the guard has ended and its output has been read. */
  readonly gone: Promise<void>
  /** Resolves when this process has reaped the guard. */
  readonly exited: Promise<void>

  /**
   * Starts a guard, which outlives this process. `prepare` is the first line to the guard, which
   * does not answer it.
   *
   * @throws if the system can't start it.
   */
  constructor(prepare: string) {
    this.#process = spawn(process.execPath, ARGUMENTS, {
      stdio: ['pipe', 'pipe', 'ignore'],
      // Keep it out of the group that it ends, and out of the one that a terminal interrupts.
      detached: true,
      // If this process is the command of another leasehold, that leasehold must not stop the
      // guard.
      env: { ...process.env, ...UNMARKED },
    })
    const { pid, stdin, stdout } = this.#process
    this.#process.on('error', () => {})
    this.gone = new Promise((resolve) => {
      // Its output ends before Node reports its end. In between, nothing that is sent gets an
      // answer.
      const end = () => {
        this.#isGone = true
        resolve()
      }
      this.#process.once('close', end)
      stdout?.once('close', end)
    })
    this.exited = new Promise((resolve) => {
      this.#process.once('exit', () => resolve())
    })
    if (pid === undefined) throw new Error(`the system could not start ${process.execPath}`)
    stdin?.on('error', () => {})
    stdout?.on('error', () => {})
    stdout?.on('data', (answers) => {
      if (String(answers).split('\n').includes(ENDING)) this.#tellEnding()
      this.#isAwaited = false
      if (this.#next !== undefined) this.report(this.#next)
    })
    stdin?.write(`${prepare}\n`)
    this.#process.unref()
  }

  /** True when the guard has ended and its output has been read. */
  get isGone(): boolean {
    return this.#isGone
  }

  /**
   * Sends the line that says what to watch. Resolves with true after the answer, and with false if
   * the guard ends before it.
   */
  begin(line: string): Promise<boolean> {
    const { stdin, stdout } = this.#process
    this.#hasBegun = true
    this.#isAwaited = true
    stdin?.write(`${line}\n`)
    return new Promise((resolve) => {
      stdout?.once('data', () => resolve(true))
      this.gone.then(() => resolve(false))
    })
  }

  /**
   * Sends a line once the guard has answered the line before. A newer line replaces a line that
   * waits. Otherwise, the pipe of a stopped guard would fill up, and the guard would not hear of
   * the end of the command.
   */
  report(line: string): void {
    this.#next = this.#isAwaited ? line : undefined
    if (this.#isAwaited || !this.#process.stdin?.writable) return
    this.#isAwaited = true
    this.#process.stdin.write(`${line}\n`)
  }

  /**
   * Sends a line at once, and drops the report that waits. Call it rarely: the pipe of a stopped
   * guard may fill up.
   */
  urge(line: string): void {
    this.#next = undefined
    if (this.#process.stdin?.writable) this.#process.stdin.write(`${line}\n`)
  }

  /** Continues the guard, which a signal may have stopped. */
  continue(): void {
    this.#process.kill('SIGCONT')
  }

  /** Ends the guard: its lock was released, or its command will not be started. */
  dismiss(): void {
    if (this.#process.stdin?.writable) this.#process.stdin.end(`${OVER}\n`)
    // A stopped guard would not read the line.
    if (this.#hasBegun) this.continue()
    // The guard may still be starting, and has no command to end.
    else this.#process.kill('SIGKILL')
    // The open pipe would keep this process alive until the guard has ended.
    this.#process.stdout?.destroy()
  }
}
