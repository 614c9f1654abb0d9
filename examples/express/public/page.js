// Shows what the server tells. Names come from elsewhere, so they are only ever set as text.

const $ = (id) => document.getElementById(id)
let state
/** What is wrong with the server, and what it answered last to a button. */
const said = { trouble: '', answer: '' }

/** A colour for each worker, on every page the same. */
function hue(name) {
  let hash = 0
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) >>> 0
  return String(Math.round((hash * 137.508) % 360))
}

function item(text, { className = '', by, title = '' } = {}) {
  const element = document.createElement('li')
  element.textContent = text
  element.className = className
  element.title = title
  if (by) element.style.setProperty('--hue', hue(by))
  return element
}

const time = (at) => new Date(at).toLocaleTimeString()

function showHolder() {
  if (!state) return
  const { holder, waiters, tenures } = state
  const since = tenures.find(({ fence }) => fence === holder?.fence)?.at
  const seconds = since === undefined ? undefined : Math.max(0, Math.round((Date.now() - since) / 1000))
  $('holder').style.setProperty('--hue', holder ? hue(holder.name ?? '') : '0')
  $('holder').style.setProperty('--colour', holder ? '0.13' : '0')
  $('holder-name').textContent = holder ? (holder.name ?? 'another library') : 'nobody'
  $('holder-details').textContent = [
    seconds !== undefined && `for ${seconds} s, since ${time(since)}`,
    holder?.fence && `fence ${holder.fence}`,
  ]
    .filter(Boolean)
    .join(' · ')
  $('waiters').replaceChildren(...waiters.map((name) => item(name, { by: name })))
}

function showJobs() {
  const done = new Map(state.done.map((entry) => [entry.done, entry]))
  const next = state.finished + 1
  const tiles = []
  for (let job = state.first; job <= state.count; job++) {
    const entry = done.get(job)
    if (entry) tiles.push(item(job, { className: 'done', by: entry.by, title: `by ${entry.by} at ${time(entry.at)}` }))
    else tiles.push(item(job, { className: job === next && state.holder ? 'next' : '' }))
  }
  $('jobs').replaceChildren(...tiles)
  $('progress').textContent = `${state.finished} of ${state.count} done`
}

function show(latest) {
  say({ trouble: latest.error ?? '' })
  if (latest.error) return
  state = latest
  $('server').textContent = state.server.workerId
  $('state').textContent = state.server.state
  $('state').className = `badge ${state.server.state}`
  document.title = `${state.server.state === 'working' ? '● ' : ''}${state.server.workerId}`
  $('tenures').replaceChildren(
    ...state.tenures.map(({ tenure, fence, at }) =>
      item(`${time(at)}  ${tenure}`, { by: tenure, title: `fence ${fence}` }),
    ),
  )
  showHolder()
  showJobs()
}

function say(latest) {
  Object.assign(said, latest)
  $('message').textContent = said.trouble || said.answer
}

const events = new EventSource('events')
events.onmessage = ({ data }) => show(JSON.parse(data))
events.onerror = () => {
  say({ trouble: 'This server does not answer. The page goes on when it is back.' })
  $('state').textContent = 'gone'
  $('state').className = 'badge'
}
setInterval(showHolder, 1000)

for (const button of document.querySelectorAll('button')) {
  button.onclick = async () => {
    try {
      const body = JSON.stringify({ count: Number(button.dataset.count) })
      const answer = await fetch('jobs', { method: 'POST', headers: { 'content-type': 'application/json' }, body })
      // The middleware that guards the route says what is wrong as a problem+json.
      const { error, detail = '' } = await answer.json()
      say({ answer: error ?? detail })
    } catch {
      say({ answer: 'The jobs could not be added: this server does not answer.' })
    }
  }
}
