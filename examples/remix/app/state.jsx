// The parts of the page that show the state.

/** A colour for each worker, on every page the same. */
function hue(name) {
  let hash = 0
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) >>> 0
  return String(Math.round((hash * 137.508) % 360))
}

const time = (at) => new Date(at).toLocaleTimeString()

export function Holder({ holder, waiters, tenures, now }) {
  const since = tenures.find(({ fence }) => fence === holder?.fence)?.at
  const seconds = now && since && Math.max(0, Math.round((now - since) / 1000))
  const details = [
    seconds !== undefined && `for ${seconds} s, since ${time(since)}`,
    holder?.fence && `fence ${holder.fence}`,
  ]
  const style = { '--hue': holder ? hue(holder.name ?? '') : '0', '--colour': holder ? '0.13' : '0' }
  return (
    <section id="holder" className="card" aria-live="polite" style={style}>
      <h2>Holds the lock</h2>
      <p id="holder-name" className="big">
        {holder ? (holder.name ?? 'another library') : 'nobody'}
      </p>
      <p id="holder-details" className="quiet">
        {details.filter(Boolean).join(' · ')}
      </p>
      <h2>Next in line</h2>
      <Names id="waiters" all={waiters.map((name) => ({ name }))} />
    </section>
  )
}

/** Servers, in their colours, and since when. */
export const Names = ({ id, all, now }) => (
  <ol id={id} className="names">
    {all.map(({ name, at }) => (
      <li key={`${name} ${at}`} style={{ '--hue': hue(name) }}>
        {at && now ? `${time(at)}  ${name}` : name}
      </li>
    ))}
  </ol>
)

export function Jobs({ first, count, finished, done, holder }) {
  const doneBy = new Map(done.map((entry) => [entry.done, entry.by]))
  const all = Array.from({ length: count - first + 1 }, (_, i) => first + i)
  const look = (job) => {
    const by = doneBy.get(job)
    if (by) return { className: 'done', title: `by ${by}`, style: { '--hue': hue(by) } }
    return { className: holder && job === finished + 1 ? 'next' : undefined }
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
