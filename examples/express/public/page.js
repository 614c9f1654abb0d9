// Shows the states that the server sends. Names come from other clients, so the page sets them only
// as text.

import { follow, UNKNOWN } from './follow.mjs'

const $ = (id) => document.getElementById(id)
/** The newest state, and the time when it came. The state is current only if `link` is 'live'. */
let state
let heard
let link = 'connecting'
/** The server's problem, and its last answer to a button. */
const said = { trouble: '', answer: '' }

/** A color for each worker, the same on every page. */
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
const nameOf = (holder) => (holder ? (holder.name ?? 'another library') : 'nobody')

function detailsOf({ holder, tenures }) {
  const since = tenures.find(({ fence }) => fence === holder?.fence)?.at
  const seconds = since === undefined ? undefined : Math.max(0, Math.round((Date.now() - since) / 1000))
  const details = [
    seconds !== undefined && `for ${seconds} s, since ${time(since)}`,
    holder?.fence && `fence ${holder.fence}`,
  ]
  return details.filter(Boolean).join(' · ')
}

function showHolder() {
  const isLive = link === 'live'
  const holder = isLive ? state.holder : undefined
  $('holder').style.setProperty('--hue', holder ? hue(holder.name ?? '') : '0')
  $('holder').style.setProperty('--colour', holder ? '0.13' : '0')
  $('holder-name').textContent = isLive ? nameOf(holder) : UNKNOWN[link]
  $('holder-details').textContent = isLive ? detailsOf(state) : state ? `${nameOf(state.holder)} at ${time(heard)}` : ''
  $('waiters').replaceChildren(...(isLive ? state.waiters.map((name) => item(name, { by: name })) : []))
}

function showJobs() {
  const done = new Map(state.done.map((entry) => [entry.done, entry]))
  const next = state.finished + 1
  const tiles = []
  for (let job = state.first; job <= state.count; job++) {
    const entry = done.get(job)
    if (entry) tiles.push(item(job, { className: 'done', by: entry.by, title: `by ${entry.by} at ${time(entry.at)}` }))
    else tiles.push(item(job, { className: job === next && link === 'live' && state.holder ? 'next' : '' }))
  }
  $('jobs').replaceChildren(...tiles)
  $('progress').textContent = `${state.finished} of ${state.count} done`
}

/** Shows a change. If the state is not current, only the done jobs and the hand-overs stay. */
function show(latest) {
  link = latest.link
  if (link === 'live') {
    state = latest.state
    heard = Date.now()
  }
  say({ trouble: latest.error ?? '' })
  document.querySelector('main').dataset.link = link
  const { workerId, state: doing } = state?.server ?? {}
  const words = link === 'live' ? doing : link === 'gone' ? 'gone' : UNKNOWN[link]
  $('state').textContent = words
  $('state').className = `badge ${link === 'live' ? doing : ''}`
  showHolder()
  if (!state) return
  $('server').textContent = workerId
  document.title = `${words === 'working' ? '● ' : ''}${workerId}${link === 'gone' ? ' (gone)' : ''}`
  $('tenures').replaceChildren(
    ...state.tenures.map(({ tenure, fence, at }) =>
      item(`${time(at)}  ${tenure}`, { by: tenure, title: `fence ${fence}` }),
    ),
  )
  showJobs()
}

function say(latest) {
  Object.assign(said, latest)
  $('message').textContent = said.trouble || said.answer
}

follow('events', show)
setInterval(() => {
  if (link === 'live') showHolder()
}, 1000)

for (const button of document.querySelectorAll('button')) {
  button.onclick = async () => {
    try {
      const body = JSON.stringify({ count: Number(button.dataset.count) })
      const answer = await fetch('jobs', { method: 'POST', headers: { 'content-type': 'application/json' }, body })
      // The middleware that protects the route answers errors as problem+json.
      const { error, detail = '' } = await answer.json()
      say({ answer: error ?? detail })
    } catch {
      say({ answer: 'The jobs could not be added: this server does not answer.' })
    }
  }
}
