import { Links, Meta, Outlet, Scripts } from '@remix-run/react'
import icon from '../../shared/public/icon.svg?url'
import style from '../../shared/public/page.css?url'

export const links = () => [
  { rel: 'stylesheet', href: style },
  { rel: 'icon', href: icon },
]

export default function Root() {
  return (
    <html lang="en">
      <head>
        <meta charSet="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <Meta />
        <Links />
      </head>
      <body>
        <Outlet />
        <Scripts />
      </body>
    </html>
  )
}
