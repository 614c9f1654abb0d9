-- A shared lease in :holders: "FENCE NAME". FENCE is NOT_TAKEN_UP until the waiter that was handed
-- the lease polls. NAME is as in fence_text.lua.
local NOT_TAKEN_UP = '-'

-- fence: a number, or nil for a lease that is not taken up.
local function encode_holder(fence, name)
  return (fence and format('%.0f', fence) or NOT_TAKEN_UP) .. ' ' .. name
end

-- Returns the fence as a number, or nil; the name; and whether the lease is not taken up. The name
-- is nil if there is no text.
local function decode_holder(text)
  local fence, name = match(text or '', '^([^ ]+) ?(.*)')
  return tonumber(fence), name, fence == NOT_TAKEN_UP
end
