-- A waiter in :waiters: "MOST NUMBER GRANT CHANNEL NAME".
--   MOST     how many leases there may be with its own; 0 for an exclusive one
--   NUMBER   the number of the waiter in notices
--   GRANT    the ms for which it is handed an exclusive lease
--   CHANNEL  the channel for its notices; NO_CHANNEL, or LOST_CHANNEL if it led nowhere. If
--            NEEDS_REPLICAS is at its end, notices have no fence, so that the waiter asks for the
--            lease and replicas get it. The client listens to the channel with this mark
--   NAME     the name of the client
local NO_CHANNEL, LOST_CHANNEL, NEEDS_REPLICAS = '-', '!', '?'

local function encode_waiter(most, number, grant, channel, name)
  return most .. ' ' .. number .. ' ' .. grant .. ' ' .. channel .. ' ' .. name
end

local function decode_waiter(text)
  return match(text, '^(%d+) (%d+) (%d+) ([^ ]+) (.*)')
end
