-- verb: set fields
-- what: of a record, with their indexes
-- request
--   model, pk, fields
--   only_new     '1' to set the only field if it has no value
--   of_run       none for any record, and for code without a claim; the token of a claim if only its run may set the
--                fields, until another claim is made, or this one lapsed and the job is rescued
-- reply
--   (a number)   of the fields that had no value
--   not unique   {field, value, pk of its owner}
--   refused      the run has lost its claim
--   gone

--@include records

local model, pk, fields = model_of(request.model), request.pk, request.fields

if not is_in_collection(model, pk) then
  return answer('gone')
end

if request.of_run then
  local token, last_claim = unpack(redis.call('HMGET', hash_key(model, pk), '_claim_token', '_last_claim'))
  local of_last = token or last_claim
  if of_last ~= request.of_run and (of_last or not waits_since_claim(hash_key(model, pk), request.of_run)) then
    return answer('refused')
  end
end

local number, new = 0, 0
for field in pairs(fields) do
  number = number + 1
  new = new + 1 - redis.call('HEXISTS', hash_key(model, pk), field)
end
if request.only_new and new < number then
  return 0
end

local conflict = not_unique(model, fields, pk)
if conflict then
  return answer('not unique', conflict)
end
update(model, pk, fields)
return new
