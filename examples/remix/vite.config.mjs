import { vitePlugin as remix } from '@remix-run/dev'
import { defineConfig } from 'vite'

export default defineConfig({
  plugins: [
    remix({
      future: {
        v3_fetcherPersist: true,
        v3_lazyRouteDiscovery: true,
        v3_relativeSplatPath: true,
        v3_singleFetch: true,
        v3_throwAbortReason: true,
      },
    }),
  ],
  // Native code can't be bundled; and there should be one leasehold in a process, the one that the server has.
  ssr: { external: ['leasehold'] },
  // Vite would prepare them for the browser, where they never get.
  optimizeDeps: { exclude: ['@remix-run/node', 'leasehold'] },
  // The style of the page is shared with the Express example.
  server: { fs: { allow: ['..'] } },
  // Several servers run in this folder at a time.
  cacheDir: `node_modules/.vite-${process.env.PORT ?? 3000}`,
})
