// A mailer that only writes a line for each mail to a file that all servers share.

import { appendFile, mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

export class Mailer {
  #folder
  #path
  #mailMs

  constructor({ dataDir, mailMs }) {
    this.#folder = dataDir
    this.#path = join(dataDir, 'outbox.jsonl')
    this.#mailMs = mailMs
  }

  /** Returns all mails so far: { to, day, by, fence }. */
  async sent() {
    const text = await readFile(this.#path, 'utf8').catch((error) => {
      if (error.code === 'ENOENT') return ''
      throw error
    })
    return text
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line))
  }

  /**
   * Returns true if the mail is sent now, and false if an earlier run has sent it. Refuses a server
   * whose fence is smaller than one that was seen. A database would check and write in one step.
   */
  async send(mail) {
    await mkdir(this.#folder, { recursive: true })
    const sent = await this.sent()
    const newest = Math.max(0, ...sent.map(({ fence }) => fence))
    if (mail.fence < newest) throw new Error(`fence ${mail.fence} is older than ${newest}: another server sends now`)
    if (sent.some(({ to, day }) => to === mail.to && day === mail.day)) return false
    await sleep(this.#mailMs)
    await appendFile(this.#path, `${JSON.stringify(mail)}\n`)
    return true
  }
}
