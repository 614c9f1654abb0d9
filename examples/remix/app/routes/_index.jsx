import { useFetcher, useLoaderData } from '@remix-run/react'
import { UNKNOWN } from '../../../shared/public/follow.mjs'
import { addJobs } from '../add-jobs.server.js'
import { useLive, useNow } from '../live.js'
import { Holder, Jobs, Names } from '../state.jsx'

export const loader = ({ context }) => context.state()
export const action = addJobs
/** Without this, Remix does not send an action's headers, here `Retry-After`. */
export const headers = ({ actionHeaders }) => actionHeaders
export const meta = ({ data }) => [{ title: data?.server?.workerId ?? 'leasehold' }]

export default function Page() {
  const { state, link, heard, error } = useLive('events', useLoaderData())
  const now = useNow()
  const fetcher = useFetcher()
  const { server } = state
  const doing = link === 'live' ? server.state : link === 'gone' ? 'gone' : UNKNOWN[link]
  return (
    <>
      <header>
        <h1>leasehold</h1>
        <p>
          This is <b id="server">{server.workerId}</b>{' '}
          <span id="state" className={`badge ${link === 'live' ? server.state : ''}`}>
            {doing}
          </span>
        </p>
      </header>
      <main data-link={link}>
        <Holder {...state} link={link} heard={heard} now={now} />
        <section className="card">
          <h2>Hand-overs</h2>
          <Names id="tenures" all={state.tenures.map(({ tenure, at }) => ({ name: tenure, at }))} now={now} />
        </section>
        <section className="card wide">
          <div className="row">
            <h2>
              Jobs{' '}
              <span id="progress" className="quiet">
                {state.finished} of {state.count} done
              </span>
            </h2>
            <fetcher.Form method="post" action="?index" className="buttons">
              <button type="submit" name="count" value="1">
                Add a job
              </button>{' '}
              <button type="submit" name="count" value="10">
                Add ten
              </button>
            </fetcher.Form>
          </div>
          <Jobs {...state} link={link} />
          <p id="message" className="quiet" role="status">
            {error ?? fetcher.data?.error}
          </p>
        </section>
      </main>
      <footer>
        Start another server with <code>PORT=3001 npm run dev</code>, then stop the one that holds the lock, or{' '}
        <code>kill -9</code> it.
      </footer>
    </>
  )
}
