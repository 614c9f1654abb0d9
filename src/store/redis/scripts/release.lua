-- Ends leases. KEYS: the locks; ARGV: a token for each.
-- Answers one value for each: 1 if the token held the lock, 0 if nobody did, -1 if somebody else does; or the server's
-- error.
--
-- Who holds a lock is asked by GETEX, a write, where the answer is no: a read-only replica must refuse, rather than say
-- by its old data that the lease is gone. And MGET shows no difference between nothing and no string.
local KEYS, ARGV, call = KEYS, ARGV, redis.pcall
local count = #KEYS

-- One by itself goes without the tables that many share.
if count == 1 then
  local owner = call('GETEX', KEYS[1])
  if owner == ARGV[1] then return { call('DEL', KEYS[1]) } end
  if not owner then return { 0 } end
  return { owner.err and owner or -1 }
end

local answers, ended, held = {}, {}, 0
local owners = call('MGET', unpack(KEYS))
if owners.err then return owners end
for i = 1, count do
  if owners[i] == ARGV[i] then
    held = held + 1
    ended[held] = KEYS[i]
    answers[i] = 1
  else
    local owner = call('GETEX', KEYS[i])
    answers[i] = not owner and 0 or owner.err and owner or -1
  end
end
if held == 0 then return answers end

local deleted = call('DEL', unpack(ended))
if deleted == held then return answers end
-- The same release twice, or a server that refuses.
local gone = {}
for i = 1, count do
  if answers[i] == 1 then
    if type(deleted) == 'table' then
      answers[i] = deleted
    elseif gone[KEYS[i]] then
      answers[i] = 0
    end
    gone[KEYS[i]] = true
  end
end
return answers
