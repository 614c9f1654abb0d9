// The ordered job list, computed from the journal's entries:
//   { added: 10 }                         ten more jobs
//   { tenure: 'server-3000', fence }      that server holds the lock from now on
//   { done: 7, by: 'server-3000', fence } job 7 is done

/** How many jobs may wait at most. */
const MOST = 500

export class TooManyJobsError extends Error {
  constructor(waiting) {
    super(`${waiting} jobs wait already, and no more than ${MOST} may`)
    this.name = 'TooManyJobsError'
  }
}

export class Jobs {
  #journal

  constructor(journal) {
    this.#journal = journal
  }

  /**
   * Counts the jobs, and then adds some. Call it under a lock, or two callers could add too many
   * together.
   */
  async add(count) {
    const list = await this.list()
    const waiting = list.count - list.done.length
    if (waiting + count > MOST) throw new TooManyJobsError(waiting)
    await this.#journal.append({ added: count, at: Date.now() })
  }

  begin = (by, fence) => this.#journal.append({ tenure: by, fence, at: Date.now() })

  finish = (job, by, fence) => this.#journal.append({ done: job, by, fence, at: Date.now() })

  /**
   * Returns how many jobs there are, the done ones in the order in which they were done, and the
   * holders of the lock.
   */
  async list() {
    const entries = await this.#journal.read()
    return {
      count: entries.reduce((sum, { added = 0 }) => sum + added, 0),
      done: entries.filter((entry) => entry.done),
      tenures: entries.filter((entry) => entry.tenure),
    }
  }

  /** Returns the number of the next job, or undefined if all are done. */
  async next() {
    const { count, done } = await this.list()
    const job = (done.at(-1)?.done ?? 0) + 1
    return job <= count ? job : undefined
  }

  close = () => this.#journal.close()
}
