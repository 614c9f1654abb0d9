/** Identifies a command. The guard gets it, too, and finds the same processes by it. */
export interface CommandId {
  /** The process that was started. */
  readonly pid: number
  /** When that process was started; `undefined` without /proc. See `ProcessStatus`. */
  readonly start: string | undefined
  /** Whether that process was given a session and a process group of its own, which have its id. */
  readonly leads: boolean
  /** The id of the run, which is in the mark of the command's processes. */
  readonly run: string
}
