// An endless stream of states, as Server-Sent Events.

import { EVENT_STREAM } from '../../../shared/live.mjs'

export function loader({ context, request }) {
  const encoder = new TextEncoder()
  const body = new ReadableStream({
    start(controller) {
      const page = {
        write: (event) => controller.enqueue(encoder.encode(event)),
        end: () => controller.close(),
      }
      const stop = context.live.follow(page)
      request.signal.addEventListener('abort', stop)
    },
  })
  return new Response(body, { headers: EVENT_STREAM })
}
