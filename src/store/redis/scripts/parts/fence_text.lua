-- The text of a :fence key: "LAST TOKEN NAME", or "LAST-BACK TOKEN NAME".
--   LAST   the last fence that was given away, in 16 digits
--   BACK   how many fences the lease has before LAST, if it has several
--   TOKEN  the lease that they were given to, or NO_TOKEN. If UNTOLD is before it, the lease is
--          kept without a fence for that waiter, which the notice did not reach
--   NAME   the name of the lease's holder, perhaps with a note; see name_notes.lua
-- If QUEUED is at the beginning of the text, the lock may have a queue. Without QUEUED, there is no
-- queue to read.
--
-- release.lua and acquire.lua read and write the common case without these functions.
local QUEUED, UNTOLD, NO_TOKEN = 'q', '-', '-'

-- The format of LAST: 16 digits, which compare like the numbers.
local DIGITS = '%016.0f'

-- last: the digits of LAST. back: the digits of BACK, '0' for none.
local function encode_fences(last, back, whose, name)
  return last .. (back == '0' and '' or '-' .. back) .. ' ' .. whose .. ' ' .. name
end

-- Returns the digits of LAST, the digits of BACK or an empty text, TOKEN with its UNTOLD, NAME, and
-- QUEUED or an empty text. All but LAST are nil in the text of a lock that has no lease yet.
local function decode_fences(text)
  local queued, last, back, whose, name = match(text, '^(q?)(%d+)%-?(%d*) ([^ ]+) ?(.*)')
  return last or match(text, '^q?(%d+)'), back, whose, name, queued
end
