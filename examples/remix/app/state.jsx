// The parts of the page that show the state.

import { UNKNOWN } from '../../shared/public/follow.mjs'

/** A color for each worker, the same on every page. */
function hue(name) {
  let hash = 0
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) >>> 0
  return String(Math.round((hash * 137.508) % 360))
}

const time = (at) => new Date(at).toLocaleTimeString()

const nameOf = (holder) => (holder ? (holder.name ?? 'another library') : 'nobody')

function detailsOf(holder, tenures, now) {
  const since = tenures.find(({ fence }) => fence === holder?.fence)?.at
  const seconds = now && since && Math.max(0, Math.round((now - since) / 1000))
  const details = [
    seconds !== undefined && `for ${seconds} s, since ${time(since)}`,
    holder?.fence && `fence ${holder.fence}`,
  ]
  return details.filter(Boolean).join(' · ')
}

/** Shows the holder of the lock, or the last known holder if the state is out of date. */
export function Holder({ holder, waiters, tenures, now, link, heard }) {
  const isLive = link === 'live'
  const isHeld = isLive && holder
  const style = { '--hue': isHeld ? hue(holder.name ?? '') : '0', '--colour': isHeld ? '0.13' : '0' }
  const past = heard ? `${nameOf(holder)} at ${time(heard)}` : ''
  return (
    <section id="holder" className="card" aria-live="polite" style={style}>
      <h2>Holds the lock</h2>
      <p id="holder-name" className="big">
        {isLive ? nameOf(holder) : UNKNOWN[link]}
      </p>
      <p id="holder-details" className="quiet">
        {isLive ? detailsOf(holder, tenures, now) : past}
      </p>
      <h2>Next in line</h2>
      <Names id="waiters" all={isLive ? waiters.map((name) => ({ name })) : []} />
    </section>
  )
}

/** Shows servers in their colors, and since when. */
export const Names = ({ id, all, now }) => (
  <ol id={id} className="names">
    {all.map(({ name, at }) => (
      <li key={`${name} ${at}`} style={{ '--hue': hue(name) }}>
        {at && now ? `${time(at)}  ${name}` : name}
      </li>
    ))}
  </ol>
)

export function Jobs({ first, count, finished, done, holder, link }) {
  const doneBy = new Map(done.map((entry) => [entry.done, entry.by]))
  const all = Array.from({ length: count - first + 1 }, (_, i) => first + i)
  const look = (job) => {
    const by = doneBy.get(job)
    if (by) return { className: 'done', title: `by ${by}`, style: { '--hue': hue(by) } }
    return { className: link === 'live' && holder && job === finished + 1 ? 'next' : undefined }
  }
  return (
    <ol id="jobs">
      {all.map((job) => (
        <li key={job} {...look(job)}>
          {job}
        </li>
      ))}
    </ol>
  )
}
