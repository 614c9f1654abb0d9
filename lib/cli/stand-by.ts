// A process that stands by while the command runs: the guard's shell or its successor. It reads
// lines from a pipe whose other end only this process has, and answers lines with lines.

import { type ChildProcess, spawn } from 'node:child_process'
import { forShell } from './gate'
import { UNMARKED } from './mark'
import { ENDING, OVER } from './takeover'

export class StandBy {
  readonly #process: ChildProcess
  /** Whether the process has yet to answer the last line, or to get the first one. */
  #isAwaited = true
  /** The report to send after that answer. */
  #next: string | undefined
  #isGone = false
  #tellEnding = () => {}
  /** Resolves when the process says that it ends the command, because this process was stopped. */
  readonly ending = new Promise<void>((resolve) => {
    this.#tellEnding = resolve
  })

  /**
   * Starts a process that outlives this one.
   *
   * @throws if the system can't start it.
   */
  constructor(file: string, args: string[], cwd?: string) {
    this.#process = spawn(file, args, {
      stdio: ['pipe', 'pipe', 'ignore'],
      // Keep it out of the group that the guard ends, and out of the one that a terminal
      // interrupts.
      detached: true,
      cwd,
      // If this process is the command of another leasehold, that leasehold must not stop the
      // guard.
      env: { ...forShell(process.env), ...UNMARKED },
    })
    const { pid, stdin, stdout } = this.#process
    this.#process.on('error', () => {})
    this.#process.once('close', () => {
      this.#isGone = true
    })
    if (pid === undefined) throw new Error(`the system could not start ${file}`)
    stdin?.on('error', () => {})
    stdout?.on('error', () => {})
    stdout?.on('data', (answers) => {
      if (String(answers).split('\n').includes(ENDING)) this.#tellEnding()
      this.#isAwaited = false
      if (this.#next !== undefined) this.report(this.#next)
    })
    this.#process.unref()
  }

  get pid(): number | undefined {
    return this.#process.pid
  }

  /** True when the process has ended and all that it said was heard. */
  get isGone(): boolean {
    return this.#isGone
  }

  /**
   * Sends the first lines, which the process answers once. Resolves with true after the answer, and
   * with false if the process ends before it.
   */
  begin(lines: string): Promise<boolean> {
    const { stdin, stdout } = this.#process
    this.#isAwaited = true
    stdin?.write(lines)
    return new Promise((resolve) => {
      stdout?.once('data', () => resolve(true))
      stdout?.once('close', () => resolve(false))
    })
  }

  /**
   * Sends a line, or the last of several, when the process has answered the line before. Otherwise,
   * the pipe of a stopped process would fill up, and the process would not hear of the end of the
   * command.
   */
  report(line: string): void {
    this.#next = this.#isAwaited ? line : undefined
    if (this.#isAwaited || !this.#process.stdin?.writable) return
    this.#isAwaited = true
    this.#process.stdin.write(`${line}\n`)
  }

  /** Sends a line at once. Do so rarely: the process may be stopped, and its pipe fill up. */
  urge(line: string): void {
    if (this.#process.stdin?.writable) this.#process.stdin.write(`${line}\n`)
  }

  /** Continues the process, which a signal may have stopped. */
  continue(): void {
    this.#process.kill('SIGCONT')
  }

  /** Tells the process that the command has ended, or could not be started. */
  dismiss(): void {
    this.#process.stdin?.end(`${OVER}\n`)
    // Nobody else continues a stopped process.
    this.continue()
    // The open pipe would keep this process alive until the other one has ended.
    this.#process.stdout?.destroy()
  }
}
