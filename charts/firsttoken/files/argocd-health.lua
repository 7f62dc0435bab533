-- Argo CD's health of an InferenceService: resource.customizations.health.firsttoken.dev_InferenceService.
-- Progressing: the operator is at work or has not seen this spec yet. Healthy: every part serves, as the spec wants it.
-- Suspended: a rollout waits for a person. Degraded: nothing will change until somebody acts.

local function find(status, kind)
  for _, condition in ipairs(status.conditions or {}) do
    if condition.type == kind then
      return condition
    end
  end
  return nil
end

local function holds(condition)
  return condition ~= nil and condition.status == "True"
end

local function health(verdict, message)
  return {status = verdict, message = message}
end

local function judge(service)
  if service.metadata.deletionTimestamp ~= nil then
    return health("Progressing", "being deleted")
  end
  local status = service.status or {}
  local ready = find(status, "Ready")
  if ready == nil then
    return health("Progressing", "the operator has not looked at it yet")
  end
  if status.observedGeneration == nil or status.observedGeneration ~= service.metadata.generation then
    return health("Progressing", "the operator has not seen this spec yet")
  end
  local stalled = find(status, "Stalled")
  if holds(stalled) then
    return health("Degraded", stalled.reason .. ": " .. stalled.message)
  end
  local rollout = find(status, "RolloutProgressing")
  if holds(rollout) and (rollout.reason == "Paused" or rollout.reason == "AwaitingApproval") then
    return health("Suspended", rollout.message)
  end
  if holds(ready) then
    return health("Healthy", ready.message)
  end
  return health("Progressing", ready.message)
end

return judge(obj)
